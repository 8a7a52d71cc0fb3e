// kernel/parity.cc — see parity.h.
#include "berth/kernel/parity.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>

#include "berth/base/check.h"
#include "berth/quant/codec.h"
#include "berth/tensor/float16.h"

namespace berth::kernel::parity {
namespace {

const std::string& hash_file() {
  static const std::string path = std::string(BERTH_SOURCE_DIR) + "/tests/data/kernel_hashes.txt";
  return path;
}

bool flag(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' && std::string(value) != "0";
}

using Hashes = std::map<std::string, uint64_t>;

// Lines "NAME = 0123456789abcdef".
Hashes read_hashes() {
  Hashes hashes;
  std::ifstream file(hash_file());
  for (std::string line; std::getline(file, line);) {
    const size_t at = line.rfind(" = ");
    if (line.empty() || line[0] == '#' || at == std::string::npos) continue;
    hashes[line.substr(0, at)] = std::strtoull(line.c_str() + at + 3, nullptr, 16);
  }
  return hashes;
}

void write_hashes(const Hashes& hashes) {
  std::ofstream file(hash_file());
  file << "# Hashes of the reference's outputs over the parity rows; written by berth_kernel_test with "
          "BERTH_UPDATE_HASHES=1.\n"
          "# A change here is a change of the bits that docs/numerics.md promises.\n";
  for (const auto& [name, hash] : hashes) {
    char text[32];
    std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
    file << name << " = " << text << "\n";
  }
}

const char* row_filter() { return std::getenv("BERTH_PARITY_ROW"); }

ThreadPool& pool(int threads) {
  static ThreadPool two(2), three(3);
  return threads == 2 ? two : three;
}

}  // namespace

std::string skipped_isas() {
  std::string text;
  for (const Isa isa : all_isas()) {
    if (isa_available(isa)) continue;
    text += (text.empty() ? "" : "; ") + std::string(isa_name(isa)) + " (" + isa_missing(isa) + ")";
  }
  return text;
}

struct Parity::State {
  std::string group;
  Hashes hashes;
  int failures = 0;
};

Parity::Parity(std::string group) : state_(new State) { state_->group = std::move(group); }

void Parity::check(const Row& row, const std::string& hash, Numerics numerics) {
  if (row_filter() != nullptr && row.name.find(row_filter()) == std::string::npos) return;
  ++rows_run_;
  const std::vector<float> expected = row.run({Isa::kRef, numerics, nullptr});
  uint64_t& folded = state_->hashes.try_emplace(state_->group + "/" + hash, 0xCBF29CE484222325u).first->second;
  folded = hash_floats(expected, folded);
  for (const Isa isa : available_isas()) {
    if (isa == Isa::kRef) continue;
    for (int threads = 1; threads <= 3; ++threads) {
      const std::vector<float> found = row.run({isa, numerics, threads == 1 ? nullptr : &pool(threads)});
      size_t at = 0;
      if (same_bits(expected, found, &at)) continue;
      if (++state_->failures > 20) continue;  // enough to see the pattern
      ADD_FAILURE() << row.name << ": " << isa_name(isa) << " on " << threads
                    << " threads differs from the reference at [" << at << "] of " << expected.size() << ": expected "
                    << (at < expected.size() ? expected[at] : 0) << ", found " << (at < found.size() ? found[at] : 0)
                    << ". Alone: BERTH_PARITY_ROW='" << row.name << "'";
    }
  }
}

Parity::~Parity() {
  if (state_->failures > 20) ADD_FAILURE() << state_->group << ": " << state_->failures << " comparisons failed";
  if (row_filter() != nullptr) return;
  Hashes known = read_hashes();
  if (flag("BERTH_UPDATE_HASHES")) {
    std::erase_if(known, [&](const auto& entry) { return entry.first.starts_with(state_->group + "/"); });
    for (const auto& [name, hash] : state_->hashes) known[name] = hash;
    write_hashes(known);
    return;
  }
  for (const auto& [name, hash] : state_->hashes) {
    const auto at = known.find(name);
    if (at == known.end()) {
      ADD_FAILURE() << name << " has no hash in " << hash_file() << "; expected one (BERTH_UPDATE_HASHES=1 writes it)";
    } else {
      EXPECT_EQ(at->second, hash) << name << ": the reference's bits are not those checked in";
    }
  }
}

}  // namespace berth::kernel::parity
