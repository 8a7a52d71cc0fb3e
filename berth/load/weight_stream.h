// load/weight_stream.h — weights brought to where they compute, for each use, ahead of it: the access mode `stream`.
//
// A streamed unit's weights stay where they are stored, in host memory or on the disk. Pieces of them (a matrix, one
// expert's matrix of a bank, all of a unit's vectors) are copied into a staging buffer in the computing device's arena
// by a background thread, in the order in which the pass will use them; what has been used makes room for the next. The
// buffer is as large as the plan says, two grains of the largest unit streamed there: while one matrix is computed
// from, the next one arrives. What goes from the disk to an accelerator passes through the host's staging buffer.
//
// The order of use is learned: the first pass through a stage asks for its pieces one by one, later passes find them
// ahead, and so does the first pass of another mode through the same unit. Routed stages (expert banks) say which
// experts they want when they know. Should a pass ask for another piece than was announced, what lies ahead is dropped
// and the piece is brought at once: slower, never wrong.
//
//     start(mode); for each stage: begin(stage); route(..)?; vector(t), acquire(t, ..).. ; end(stage); then status()
//
// A piece that cannot be brought (a file that changed) is all zeros, and status() says so: results must not be used
// then. One computing thread calls; nothing is allocated once every mode has run.
//
// Start reading at: WeightStream::acquire, then fill_loop.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "berth/device/device.h"
#include "berth/load/weight_store.h"

namespace berth::load {

// What one step of the forward pass streams. A unit may have several stages one after the other.
struct StreamStage {
  int32_t unit = -1;
  device::Device* on = nullptr;  // computes
  bool opens = false;            // the unit's first stage: its vectors come
  bool closes = false;           // its last: they go
  bool routed = false;           // its matrices are known only in the pass
  std::vector<int32_t> vectors;  // of the unit: indices into spec.tensors
};

// Rows [row_begin, row_begin + row_count) of a tensor.
struct StreamPiece {
  int32_t tensor = -1;
  int64_t row_begin = 0, row_count = 0;
  bool operator==(const StreamPiece&) const = default;
};

// A piece in the staging buffer: row `row_begin` of the tensor is row 0 of the matrix.
struct StagedMatrix {
  const quant::PackedMatrix* matrix = nullptr;
  int64_t row_begin = 0;
};

struct StreamParts {
  const WeightStore* weights = nullptr;
  device::DeviceSet* devices = nullptr;
  size_t tensor_count = 0;
  // Per mode, the stages in the order of a pass.
  std::vector<std::vector<StreamStage>> modes;
  struct Pool {
    device::Device* on = nullptr;
    uint64_t bytes = 0;  // DeviceUse::staging_bytes
  };
  std::vector<Pool> pools;  // one for each device that stages compute on; the cpu's also for what passes through it
};

class WeightStream {
 public:
  // Takes the staging buffers from the arenas. Errors: kDoesNotFit.
  static Result<std::unique_ptr<WeightStream>> create(StreamParts parts);
  ~WeightStream();

  // A pass begins that runs the first `stages` stages of the mode; what an abandoned one left is dropped, and with it
  // its failure.
  void start(size_t mode, size_t stages);
  // Stage `stage` of the mode begins: its vectors are there on return.
  void begin(size_t stage);
  // The pieces of a routed stage, in the order in which they will be asked for.
  void route(const std::vector<StreamPiece>& pieces);
  // The piece, on the device of the stage, until the next acquire() or end(). The same again costs nothing.
  StagedMatrix acquire(const StreamPiece& piece);
  const float* vector(int32_t tensor) const;
  void end(size_t stage);
  // The first failure since start().
  Status status() const;
  // Requests so far that were not announced, and so not brought ahead of use.
  int64_t unexpected() const;

 private:
  struct State;
  explicit WeightStream(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace berth::load
