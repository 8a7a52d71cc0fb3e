// machine/budget.h — how many bytes of each device a plan may fill: memory, caps (--max-memory), overhead, margin.
//
//   B(d) = min(memory, cap) - overhead - margin                                                     (planner.md 1)
//
// Caps follow the contract: once one accelerator is named, those not named are left out; a cpu or disk not named keeps
// its memory; 0 excludes. A device that is left out keeps its place, so that device "1" stays "1".
//
// Start reading at: device_budgets().
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "berth/base/result.h"
#include "berth/machine/machine.h"

namespace berth::machine {

// What --max-memory says, before a machine is known.
struct MemoryCaps {
  struct Entry {
    std::string name;  // as written: "0", "cuda:0", "emu:1", "cpu", "disk"
    uint64_t bytes = 0;
  };
  std::vector<Entry> entries;      // as given
  std::vector<std::string> notes;  // about lower-case "gb"

  bool empty() const { return entries.empty(); }
};

// "0=18GiB,1=10GiB,cpu=48GiB", or a JSON object {"0": "18GiB", "cpu": 51539607552}.
// Names must be "cpu", "disk", a plain accelerator number ("0", not "00" or "0x0" or "-1") or a device id with a colon.
// Errors: kInvalidArgument naming the entry and what is accepted; a name given twice.
Result<MemoryCaps> parse_max_memory(std::string_view text);
Result<MemoryCaps> max_memory_from_json(JsonView json);

// What to do with accelerators named in caps that the machine does not have.
enum class BeyondMachine {
  kRefuse,   // an error with the number of accelerators there are
  kEmulate,  // planning: they are added as emulated devices of that memory, with the contract's rates
};

// `machine` with the accelerators that only `caps` names appended as emulated devices (numbers between that nobody
// named come along with 0 bytes). Errors: kInvalidArgument (unknown names, with kRefuse also absent numbers).
Result<Machine> machine_for_caps(const Machine& machine, const MemoryCaps& caps, BeyondMachine beyond);

// --margin: bytes or a share of the budget, for every accelerator and the cpu; nothing = the default of each kind.
struct Margin {
  std::optional<uint64_t> bytes;
  std::optional<double> share;  // 0.02 = 2 %

  bool is_default() const { return !bytes && !share; }
};
// "512MiB", "2%", "0". Errors: kInvalidArgument.
Result<Margin> parse_margin(std::string_view text);

inline constexpr uint64_t kDefaultMarginBytes = uint64_t{64} << 20;

struct DeviceBudget {
  std::string map_name;         // "0", "cpu", "disk"
  std::string machine_id;       // "emu:0"
  uint64_t budget_bytes = 0;    // min(memory, cap): the plan's "budget_bytes"
  uint64_t overhead_bytes = 0;  // 0 where the budget is 0
  uint64_t margin_bytes = 0;
  bool capped = false;    // a cap names it
  bool left_out = false;  // not named although another accelerator is, or capped at 0, or unknown and not named

  // B(d); 0 where overhead and margin take it all.
  uint64_t usable_bytes() const {
    const uint64_t taken = overhead_bytes + margin_bytes;
    return budget_bytes > taken ? budget_bytes - taken : 0;
  }
};

struct Budgets {
  std::vector<DeviceBudget> devices;  // one per device of the machine, in its order
  std::vector<std::string> notes;     // complete sentences for people
};

// Default margin: max(1 %, 64 MiB) on CUDA and the cpu, 0 on emulated devices and the disk.
// Errors: kInvalidArgument (a cap for a device the machine lacks, or two names of one device).
Result<Budgets> device_budgets(const Machine& machine, const MemoryCaps& caps = {}, const Margin& margin = {});

}  // namespace berth::machine
