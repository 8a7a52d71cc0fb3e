// engine/report.h — what commands print: plans, memory, module trees, as text and as the contract's JSON.
//
// Pure functions of values. Start reading at: plan_text.
#pragma once

#include <span>
#include <string>

#include "berth/base/json.h"
#include "berth/engine/bench.h"
#include "berth/engine/load_rates.h"
#include "berth/engine/running.h"
#include "berth/engine/verify.h"
#include "berth/plan/device_map.h"
#include "berth/plan/plan_json.h"

namespace berth::engine {

struct TextStyle {
  bool color = false;
  int width = 80;
};

// Where things are stored, collapsed over the module tree; covers every parameter and buffer.
plan::DeviceMap device_map_of(const OpenedModel& model, const plan::Plan& plan);

// The PLAN document of the contract.
plan::PlanDocument plan_document(const OpenedModel& model, const PlannedModel& planned, const Options& options);

std::string plan_text(const OpenedModel& model, const PlannedModel& planned, const TextStyle& style);
void write_plan(const OpenedModel& model, const PlannedModel& planned, const Options& options, JsonWriter& out);

std::string memory_text(std::span<const MemoryRow> rows);
void write_memory(std::span<const MemoryRow> rows, JsonWriter& out);
// Bytes a token moves, by way; "" where nothing does.
std::string traffic_text(std::span<const TrafficRow> rows);
void write_traffic(std::span<const TrafficRow> rows, JsonWriter& out);

std::string inspect_text(const OpenedModel& model, int depth, const TextStyle& style);
void write_inspect(const OpenedModel& model, JsonWriter& out);

std::string bench_text(std::span<const BenchRow> rows);
void write_bench(std::span<const BenchRow> rows, JsonWriter& out);
void write_load_bench(std::span<const LoadBenchRow> rows, JsonWriter& out);

void write_error(const Error& error, JsonWriter& out);
void write_error_object(const Error& error, JsonWriter& out);  // the value of "error"

}  // namespace berth::engine
