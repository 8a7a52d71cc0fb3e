// engine/opened_model.h — a checkpoint opened and understood: architecture, storage formats, nothing read but headers.
//
// Start reading at: open_model.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "berth/arch/quantize_rules.h"
#include "berth/arch/registry.h"
#include "berth/base/log.h"
#include "berth/engine/options.h"
#include "berth/format/checkpoint.h"
#include "berth/sizing/storage.h"
#include "berth/sizing/tree_bytes.h"
#include "berth/sizing/units.h"

namespace berth::engine {

struct OpenedModel {
  std::string name;  // as given, last part
  std::unique_ptr<format::Checkpoint> checkpoint;
  arch::ModelDescription description;
  arch::QuantizeRules quantize_rules;           // empty unless 4 or 8 bit was asked for
  std::optional<quant::StoredFormat> quantize_to;
  std::vector<sizing::TensorStorage> storage;   // one per spec.tensors
  std::optional<sizing::TreeBytes> tree_bytes;  // a *.tree.json: its tensors' bytes; spec then names the root's class alone
  DType dtype = DType::kBF16;                   // what unquantized weights are held as
  DType kv_dtype = DType::kBF16;
  std::vector<std::string> notes;               // for people: what was quantized, skipped, ignored

  const arch::ModelSpec& spec() const { return description.spec; }
  // "nf4", "int8", "q4_k" (the commonest of the matrices) or "none".
  std::string quantization() const;
  uint64_t parameters() const;
};

// What --dtype or another option called `option` asks for: kF32, kF16 or kBF16; nothing for "" and "auto".
Result<std::optional<DType>> requested_dtype(std::string_view option, const std::string& text);
// What --load-in-4bit, --load-in-8bit and theirs ask for; nothing where neither was given, or where 8 bit keeps its
// 16-bit weights.
Result<std::optional<quant::StoredFormat>> requested_format(const Options& options);

// --llm-int8-skip-modules: "a,b", or a JSON list, which may be empty; nothing where it was not given.
Result<std::optional<std::vector<std::string>>> requested_skip_list(const Options& options);
// Such a list as the option's text.
std::string skip_list_text(const std::vector<std::string>& names);
// An entry of the option's list that matches no module is an error that names the nearest one.
Status check_skip_list(const arch::ModuleTree& tree, const arch::QuantizeRules& rules);
// What 4 and 8 bit are made from where --dtype is not given, as Transformers has it: what the config says.
std::optional<DType> stated_load_dtype(const arch::ModelDescription& description);

// In which format every tensor is held, under these options; open_model's own step, and what a plan under other options asks.
struct ChosenStorage {
  std::optional<quant::StoredFormat> quantize_to;
  arch::QuantizeRules rules;
  std::vector<sizing::TensorStorage> storage;
  std::optional<sizing::TreeBytes> tree_bytes;
};
Result<ChosenStorage> choose_storage(const arch::ModelDescription& description, const Options& options);

// The units a planner places, for this shape; `whole_layers` for engines that cannot cut a layer.
sizing::UnitTable model_units(const OpenedModel& model, const sizing::RunShape& shape, bool whole_layers);
// The same with weights held otherwise.
sizing::UnitTable model_units(const OpenedModel& model, const ChosenStorage& storage, const sizing::RunShape& shape, bool whole_layers);

// The checkpoint alone: for commands that need its texts but not its architecture.
Result<format::Checkpoint> open_checkpoint(const std::string& model, const Log& log);

// Errors: as Checkpoint::open and describe_model; kInvalidArgument for options that contradict one another.
Result<OpenedModel> open_model(const std::string& model, const Options& options, const Log& log);

}  // namespace berth::engine
