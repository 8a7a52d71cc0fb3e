// tests/models/placed_model.h — a checkpoint opened, placed by hand and loaded: what the end-to-end tests run.
//
// Placement is a function from unit to device-map name, so that a test can put anything anywhere.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "berth/arch/registry.h"
#include "berth/base/thread_pool.h"
#include "berth/device/device.h"
#include "berth/format/checkpoint.h"
#include "berth/load/load_weights.h"
#include "berth/model/model.h"
#include "berth/plan/assign.h"

namespace berth::testing {

struct Placement {
  std::string name;
  // Emulated devices of this machine: their kernels, in order. The cpu uses `cpu_isa`.
  std::vector<Isa> emulated;
  std::vector<uint64_t> emulated_bytes;  // their memory; 8 GiB where not given
  Isa cpu_isa = best_isa();
  using DeviceOf = std::function<std::string(const sizing::Unit& unit, size_t index, size_t count)>;
  DeviceOf device_of;           // stores: "cpu", "disk", "0"...
  DeviceOf computed_on;         // where not given the same, for the disk the cpu
  bool stream_prefill = false;  // what computes on the cpu may be brought to an accelerator for a prompt
  bool moves_weights() const { return computed_on != nullptr || stream_prefill; }
};
Placement all_on_cpu(Isa isa = best_isa());

struct RunOptions {
  sizing::RunShape shape;
  kernel::Numerics numerics = kernel::Numerics::kExact;
  int threads = 1;
  std::optional<quant::StoredFormat> quantize_to;  // of every Linear but the head
  std::string offload_folder;
  bool map_files = true;
  bool look_while_used = false;
  Log log;
};

// Everything alive behind a Model.
struct PlacedModel {
  std::unique_ptr<format::Checkpoint> checkpoint;
  arch::ModelDescription description;
  std::vector<sizing::TensorStorage> storage;
  sizing::UnitTable units;
  machine::Machine machine;
  plan::Plan plan;
  device::DeviceSet devices;
  std::unique_ptr<ThreadPool> pool;
  load::WeightStore weights;
  std::optional<model::Model> model;
};

Result<std::unique_ptr<PlacedModel>> place_model(const std::string& path, const Placement& placement,
                                                 const RunOptions& options);

// Logits of every position of `tokens` (sequence 0), [tokens, vocab] row by row.
Result<std::vector<float>> all_logits(model::Model& model, const std::vector<int32_t>& tokens);

// A new folder under the system's temporary one, removed with its content at the end.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }
  // Paths of all files in it, however deep, sorted.
  std::vector<std::string> files() const;

 private:
  std::string path_;
};

// Folders of golden/models; all are run.
const std::vector<std::string>& golden_models();

// Fails where docs/figures.md lacks this row of a table, and prints it for tools/make_figures_page.py.
void expect_on_figures_page(const std::string& table, const std::string& row);

std::string shared_path(const std::string& name);  // BERTH_SHARED/name
bool in_ci();                                      // CI=true: what is missing fails instead of being skipped

// Skips the test by the file's name where it is not there; fails in CI.
#define BERTH_NEEDS(path)                                                     \
  do {                                                                        \
    if (!::berth::path_exists(path)) {                                        \
      if (::berth::testing::in_ci()) FAIL() << "CI needs " << (path);         \
      GTEST_SKIP() << (path) << " is not there (BERTH_SHARED, BERTH_MODELS)"; \
    }                                                                         \
  } while (false)

}  // namespace berth::testing
