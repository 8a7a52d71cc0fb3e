// engine/running.h — a planned model brought to life: devices opened, weights loaded, tokenizer made.
//
// Start reading at: load_model.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "berth/base/thread_pool.h"
#include "berth/device/device.h"
#include "berth/engine/planning.h"
#include "berth/load/weight_store.h"
#include "berth/model/model.h"
#include "berth/text/tokenizer.h"

namespace berth::engine {

// Bytes of one device as planned and as its arena counted them.
struct MemoryRow {
  std::string device;  // map name
  struct Pair {
    uint64_t predicted = 0, measured = 0;
  };
  Pair weights, kv, workspace, staging, peak;
};

// Bytes that one token moves over one way, as planned and as counted; by device-map names, and what they are.
struct TrafficRow {
  std::string from, to, cargo;
  uint64_t predicted = 0;
  double counted = 0;  // mean of the decode steps so far
};

// Everything alive behind a running model. Addresses stay put (held by unique_ptr), since parts refer to one another.
struct RunningModel {
  OpenedModel* opened = nullptr;
  PlannedModel planned;
  device::DeviceSet devices;
  std::unique_ptr<ThreadPool> pool;
  load::WeightStore weights;
  std::optional<model::Model> model;
  double load_s = 0;

  // One row per device that holds anything, in machine order.
  std::vector<MemoryRow> memory() const;
  // One row per way that decoding uses; empty before the first step.
  std::vector<TrafficRow> traffic() const;
};

// Whether it can run at all: it has weights, its forward pass exists. Errors: unsupported, invalid argument.
Status check_runnable(const OpenedModel& opened, const Options& options);

// When mapped weights are looked through for NaN, which is an error of loading. kWhileFirstUsed is for a run that
// follows at once and then reads the file once, not twice: the first logits, instead of load_model, may fail with that
// error.
enum class NanLook : uint8_t { kWhileLoading, kWhileFirstUsed };

// Errors: kDoesNotFit (never after a plan was made, unless the machine lies), kCorruptData, kIo, kUnsupported,
// kCancelled.
Result<std::unique_ptr<RunningModel>> load_model(OpenedModel& opened, PlannedModel planned, const Options& options,
                                                 const Log& log, NanLook look = NanLook::kWhileLoading);

// The checkpoint's tokenizer: tokenizer.json and its companions, or GGUF metadata. Errors: kUnsupported where it has
// none.
Result<text::Tokenizer> make_tokenizer(const format::Checkpoint& checkpoint);

}  // namespace berth::engine
