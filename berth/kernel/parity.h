// kernel/parity.h — what the parity tests share: targets, rows, inputs that are hard on purpose, hashes.
//
// A row is one call of one operation with fixed inputs. Its reference output is compared bit by bit with every
// instruction set this CPU has, on 1, 2 and 3 threads, and folded into a hash that is checked in
// (tests/data/kernel_hashes.txt), so that machines of different instruction sets meet in one number.
//
//   BERTH_PARITY_ROW=TEXT     run only the rows whose name contains TEXT (a failing row prints itself)
//   BERTH_UPDATE_HASHES=1     write the hashes of this run instead of comparing them
//
// Tests only. Start reading at: Parity::check.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "berth/base/isa.h"
#include "berth/base/thread_pool.h"
#include "berth/kernel/context.h"
#include "berth/quant/packed.h"

namespace berth::kernel::parity {

// splitmix64: the same numbers on every machine.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t bits();
  int64_t below(int64_t n) { return static_cast<int64_t>(bits() % static_cast<uint64_t>(n)); }
  float uniform() { return static_cast<float>(bits() >> 40) * 0x1p-24f; }  // [0, 1)
  float signed_unit() { return 2 * uniform() - 1; }
  float normal();  // close to a Gaussian: sum of uniforms

 private:
  uint64_t state_;
};

uint64_t seed_of(const std::string& name);

enum class Inputs { kPlain, kHard };  // hard: zeros, negative zeros, denormals, 1e30 among plain values
std::vector<float> values(Random& random, int64_t n, Inputs kind);

// Memory on a 64-byte boundary.
class Aligned {
 public:
  explicit Aligned(size_t bytes);
  std::byte* data() const { return data_; }
  std::span<std::byte> span() const { return {data_, size_}; }

 private:
  std::unique_ptr<std::byte[]> memory_;
  std::byte* data_;
  size_t size_;
};

// A matrix with random codes (every code, -128 too) and random finite scales.
struct Matrix {
  Matrix(const quant::StoredFormat& format, int64_t rows, int64_t cols, Random& random);
  quant::PackedLayout layout;
  Aligned memory;
  quant::PackedMatrix view;
};
// Formats of the rows: every codec, and the block sizes and nesting of the bitsandbytes ones.
std::vector<quant::StoredFormat> formats();

struct Row {
  std::string name;  // "linear/nf4 (block 64)/exact/m2 n5 k72"
  // Runs the operation and returns everything it may have written, gaps of strides included.
  std::function<std::vector<float>(const Context&)> run;
};

// Collects mismatches and hashes of the rows of one test.
class Parity {
 public:
  explicit Parity(std::string group);  // "linear": prefix of the hash names
  ~Parity();                           // compares or writes the hashes

  // `hash`: the name that this row's output is folded into.
  void check(const Row& row, const std::string& hash, Numerics numerics = Numerics::kExact);
  int rows_run() const { return rows_run_; }

 private:
  struct State;
  std::unique_ptr<State> state_;
  int rows_run_ = 0;
};

// The instruction sets that were not compared, as text for the test's output; empty where all were.
std::string skipped_isas();

bool same_bits(std::span<const float> a, std::span<const float> b, size_t* first_difference);
uint64_t hash_floats(std::span<const float> values, uint64_t hash = 0xCBF29CE484222325u);

}  // namespace berth::kernel::parity
