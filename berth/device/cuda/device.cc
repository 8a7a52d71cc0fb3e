// device/cuda/device.cc — cudaMalloc arenas, copies on the device's own stream, and what the driver says of each card.
#include <fmt/format.h>

#include <array>
#include <charconv>

#include "berth/base/bytes.h"
#include "berth/base/strings.h"
#include "berth/device/backend.h"
#include "berth/device/cuda/check.h"

namespace berth::device {

Status cuda_status(cudaError_t code, std::string_view call, std::string_view device_id) {
  if (code == cudaSuccess) return {};
  static_cast<void>(cudaGetLastError());  // an error that is reported here must not surface in the next call
  return Error(ErrorCode::kDevice, fmt::format("device {}: {}: {}", quoted(device_id), call, cudaGetErrorString(code)));
}

CurrentDevice::CurrentDevice(int number) : code_(cudaGetDevice(&previous_)) {
  if (code_ == cudaSuccess) code_ = cudaSetDevice(number);
}
CurrentDevice::~CurrentDevice() {
  if (code_ == cudaSuccess) static_cast<void>(cudaSetDevice(previous_));
}

namespace {

constexpr size_t kCudaAlignment = 512;

class CudaRegions : public RegionSource {
 public:
  CudaRegions(int number, std::string id) : number_(number), id_(std::move(id)) {}

  Result<std::span<std::byte>> acquire(uint64_t bytes) override {
    const CurrentDevice current(number_);
    TRY_STATUS(cuda_status(current.code(), "cudaSetDevice", id_));
    void* at = nullptr;
    TRY_STATUS(cuda_status(cudaMalloc(&at, bytes), fmt::format("cudaMalloc of {}", format_bytes(bytes)), id_));
    return std::span<std::byte>(static_cast<std::byte*>(at), bytes);
  }
  void release(std::span<std::byte> region) override {
    const CurrentDevice current(number_);
    static_cast<void>(cudaFree(region.data()));  // at exit the driver may be gone already; nothing to do about it
  }
  bool host_addressable() const override { return false; }

 private:
  int number_;
  std::string id_;
};

// A cudaStream_t of one device.
class CudaStream : public Stream {
 public:
  static Result<std::unique_ptr<CudaStream>> make(int number, const std::string& id) {
    const CurrentDevice current(number);
    TRY_STATUS(cuda_status(current.code(), "cudaSetDevice", id));
    cudaStream_t handle = nullptr;
    TRY_STATUS(cuda_status(cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking), "cudaStreamCreate", id));
    return std::unique_ptr<CudaStream>(new CudaStream(number, id, handle));
  }
  ~CudaStream() override {
    const CurrentDevice current(number_);
    static_cast<void>(cudaStreamDestroy(handle_));
  }
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  Status queue_from_host(std::byte* to, const std::byte* from, uint64_t bytes) override {
    return queue(to, from, bytes, cudaMemcpyHostToDevice);
  }
  Status queue_to_host(std::byte* to, const std::byte* from, uint64_t bytes) override {
    return queue(to, from, bytes, cudaMemcpyDeviceToHost);
  }
  Status queue_from_peer(std::byte* to, int from_number, const std::byte* from, uint64_t bytes) {
    if (bytes == 0) return {};
    return cuda_status(cudaMemcpyPeerAsync(to, number_, from, from_number, bytes, handle_), "cudaMemcpyPeerAsync", id_);
  }
  Status wait() override { return cuda_status(cudaStreamSynchronize(handle_), "cudaStreamSynchronize", id_); }

 private:
  CudaStream(int number, std::string id, cudaStream_t handle) : number_(number), id_(std::move(id)), handle_(handle) {}
  Status queue(std::byte* to, const std::byte* from, uint64_t bytes, cudaMemcpyKind kind) {
    if (bytes == 0) return {};
    const CurrentDevice current(number_);
    TRY_STATUS(cuda_status(current.code(), "cudaSetDevice", id_));
    return cuda_status(cudaMemcpyAsync(to, from, bytes, kind, handle_), "cudaMemcpyAsync", id_);
  }
  int number_;
  std::string id_;
  cudaStream_t handle_;
};

class CudaDevice : public Device {
 public:
  CudaDevice(const std::string& id, std::string map_name, int number, uint64_t budget_bytes,
             std::unique_ptr<CudaStream> copies)
      : Device(id, std::move(map_name), machine::DeviceKind::kCuda, Isa::kRef,
               Arena(id, budget_bytes, std::make_shared<CudaRegions>(number, id), kCudaAlignment)),
        number_(number),
        copies_(std::move(copies)) {}

  Status copy_from_host(std::byte* to, const std::byte* from, uint64_t bytes) override {
    TRY_STATUS(copies_->queue_from_host(to, from, bytes));
    return copies_->wait();
  }
  Status copy_to_host(std::byte* to, const std::byte* from, uint64_t bytes) override {
    TRY_STATUS(copies_->queue_to_host(to, from, bytes));
    return copies_->wait();
  }
  Status copy_from_peer(std::byte* to, const Device& from_device, const std::byte* from, uint64_t bytes) override {
    const auto& peer = static_cast<const CudaDevice&>(from_device);  // DeviceSet::copy: both are of kind cuda
    TRY_STATUS(copies_->queue_from_peer(to, peer.number_, from, bytes));
    return copies_->wait();
  }
  Result<std::unique_ptr<Stream>> make_stream() override {
    TRY(auto stream, CudaStream::make(number_, id()));
    return std::unique_ptr<Stream>(std::move(stream));
  }
  Status synchronize() override {
    const CurrentDevice current(number_);
    TRY_STATUS(cuda_status(current.code(), "cudaSetDevice", id()));
    return cuda_status(cudaDeviceSynchronize(), "cudaDeviceSynchronize", id());
  }

 private:
  int number_;
  std::unique_ptr<CudaStream> copies_;
};

// N of "cuda:N".
std::optional<int> cuda_number(std::string_view id) {
  constexpr std::string_view kPrefix = "cuda:";
  if (id.substr(0, kPrefix.size()) != kPrefix) return std::nullopt;
  const std::string_view digits = id.substr(kPrefix.size());
  int number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || end != digits.data() + digits.size() || number < 0) return std::nullopt;
  return number;
}

// fp32 units of one multiprocessor by compute capability; 0 where not in the table.
int fp32_units(int major, int minor) {
  struct Row {
    int major, minor, units;
  };
  static constexpr std::array<Row, 14> kRows = {{{5, 0, 128},
                                                 {5, 2, 128},
                                                 {6, 0, 64},
                                                 {6, 1, 128},
                                                 {7, 0, 64},
                                                 {7, 5, 64},
                                                 {8, 0, 64},
                                                 {8, 6, 128},
                                                 {8, 7, 128},
                                                 {8, 9, 128},
                                                 {9, 0, 128},
                                                 {10, 0, 128},
                                                 {10, 3, 128},
                                                 {12, 0, 128}}};
  for (const Row& row : kRows)
    if (row.major == major && row.minor == minor) return row.units;
  return major >= 8 ? 128 : 0;
}

int attribute(cudaDeviceAttr which, int number) {
  int value = 0;
  if (cudaDeviceGetAttribute(&value, which, number) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return 0;
  }
  return value;
}

CudaDeviceInfo info_of(int number) {
  CudaDeviceInfo info;
  info.number = number;
  cudaDeviceProp properties{};
  if (const cudaError_t code = cudaGetDeviceProperties(&properties, number); code != cudaSuccess) {
    info.problem = cudaGetErrorString(code);
    static_cast<void>(cudaGetLastError());
    return info;
  }
  info.name = properties.name;
  const int64_t memory_khz = attribute(cudaDevAttrMemoryClockRate, number);
  info.read_bytes_per_s = 2 * memory_khz * 1000 * (properties.memoryBusWidth / 8);  // two transfers a clock
  const int64_t core_khz = attribute(cudaDevAttrClockRate, number);
  info.flops_per_s =
      2 * core_khz * 1000 * properties.multiProcessorCount * fp32_units(properties.major, properties.minor);
  const CurrentDevice current(number);
  cudaError_t code = current.code();
  size_t free_bytes = 0, total_bytes = 0;
  if (code == cudaSuccess) code = cudaMemGetInfo(&free_bytes, &total_bytes);  // after the context's own share is taken
  if (code != cudaSuccess) {
    info.problem = cudaGetErrorString(code);
    static_cast<void>(cudaGetLastError());
    return info;
  }
  info.free_bytes = free_bytes;
  info.total_bytes = total_bytes;
  return info;
}

}  // namespace

Result<std::unique_ptr<Device>> open_cuda(const machine::DeviceSpec& spec, const BackendOptions& options) {
  const auto number = cuda_number(spec.id);
  if (!number)
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("opening device {}: a CUDA device's id is \"cuda:\" and its number", quoted(spec.id)));
  int count = 0;
  TRY_STATUS(cuda_status(cudaGetDeviceCount(&count), "cudaGetDeviceCount", spec.id));
  if (*number >= count)
    return Error(ErrorCode::kDevice, fmt::format("opening device {}: the CUDA driver shows {} device{}",
                                                 quoted(spec.id), count, count == 1 ? "" : "s"));
  TRY(auto copies, CudaStream::make(*number, spec.id));
  return std::unique_ptr<Device>(
      new CudaDevice(spec.id, options.map_name, *number, options.budget_bytes, std::move(copies)));
}

CudaProbe probe_cuda() {
  CudaProbe probe;
  int count = 0;
  const cudaError_t code = cudaGetDeviceCount(&count);
  if (code != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    if (code != cudaErrorNoDevice)
      probe.note =
          fmt::format("The CUDA driver does not answer ({}); no CUDA device is used.", cudaGetErrorString(code));
    return probe;
  }
  for (int number = 0; number < count; ++number) probe.devices.push_back(info_of(number));
  return probe;
}

}  // namespace berth::device
