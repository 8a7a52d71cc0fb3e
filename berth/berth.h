// berth/berth.h — Berth as a library: open a checkpoint, plan where its modules live, load them there, generate.
//
//   using namespace berth;
//   engine::Options options;                                                       // the command line's options, by name
//   options.load_in_4bit = true;
//   TRY(auto opened, engine::open_model("path/to/checkpoint", options, Log()));    // headers only
//   TRY(auto planned, engine::plan_model(opened, options));                        // no device is touched
//   TRY(auto running, engine::load_model(opened, std::move(planned), options, Log()));
//   TRY(auto generator, engine::Generator::create(*running));
//   engine::GenerationOptions ask;
//   ask.prompt = "Once upon a time";
//   TRY(auto answer, generator->answer(ask));                                      // answer.text
//
// Every function that can fail returns Result<T> (base/result.h); the library neither prints, exits nor throws. Notes,
// warnings and progress come through the Log one passes. examples/ in the repository has complete programs.
// CMake: find_package(berth REQUIRED), target_link_libraries(me PRIVATE berth::berth).
#pragma once

#include "berth/base/bytes.h"
#include "berth/base/log.h"
#include "berth/base/result.h"
#include "berth/base/version.h"
#include "berth/engine/bench.h"
#include "berth/engine/doctor.h"
#include "berth/engine/evaluate.h"
#include "berth/engine/generation.h"
#include "berth/engine/opened_model.h"
#include "berth/engine/options.h"
#include "berth/engine/planning.h"
#include "berth/engine/report.h"
#include "berth/engine/running.h"
#include "berth/engine/verify.h"
