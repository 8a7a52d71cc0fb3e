// base/file_mapping.cc — see file_mapping.h.
#include "berth/base/file_mapping.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "berth/base/bytes.h"
#include "berth/base/json.h"
#include "berth/base/strings.h"

namespace berth {
namespace {

constexpr uint64_t kLargePage = uint64_t{2} << 20;
constexpr uint64_t kPage = 4096;

// What the handler reads: plain addresses and texts made beforehand. A slot is taken by setting `text`, last.
struct Slot {
  std::atomic<bool> taken{false};
  std::atomic<uintptr_t> begin{0}, end{0};
  std::atomic<const std::string*> text{nullptr}, json{nullptr};
};
constexpr int kSlots = 256;  // a fault in a mapping beyond them is told without a name
Slot slots[kSlots];

struct sigaction previous_action;
bool tells_json = false;

void write_all(int descriptor, const char* text, size_t bytes) {
  while (bytes > 0) {
    const ssize_t n = ::write(descriptor, text, bytes);
    if (n < 0 && errno != EINTR) return;
    if (n > 0) text += n, bytes -= static_cast<size_t>(n);
  }
}

// Only what may be called in a signal handler.
void on_fault(int number, siginfo_t* info, void*) {
  const auto at = reinterpret_cast<uintptr_t>(info->si_addr);
  for (const Slot& slot : slots) {
    if (at < slot.begin.load() || at >= slot.end.load()) continue;
    const std::string* const text = slot.text.load();
    const std::string* const json = slot.json.load();
    if (text == nullptr || json == nullptr) continue;
    if (tells_json)
      write_all(STDOUT_FILENO, json->data(), json->size());
    else
      write_all(STDERR_FILENO, text->data(), text->size());
    ::_exit(exit_status(ErrorCode::kIo));
  }
  ::sigaction(number, &previous_action, nullptr);  // not ours: the access faults again on return,
  if (info->si_code <= 0) ::raise(number);         // a signal that was sent does not
}

int take_slot(const File& file, std::span<const std::byte> bytes) {
  const Error error(ErrorCode::kIo,
                    fmt::format("reading {}, of which weights are used where they are: it was cut short, or its disk "
                                "failed",
                                quoted(file.path(), 400)),
                    {"Leave the file alone while it is used, or have it copied: --no-mmap."});
  for (int i = 0; i < kSlots; ++i) {
    bool free = false;
    if (!slots[i].taken.compare_exchange_strong(free, true)) continue;
    JsonWriter json(2);
    json.begin_object().key("error").begin_object();
    json.member("code", error_code_name(error.code)).member("message", error.message).key("hints").begin_array();
    for (const std::string& hint : error.hints) json.value(hint);
    json.end_array().key("details").raw("{}").end_object().end_object();
    slots[i].json = new std::string(json.take() + "\n");
    slots[i].text = new std::string(
        fmt::format("berth: {}: {}\n  try: {}\n", error_code_name(error.code), error.message, error.hints[0]));
    slots[i].begin = reinterpret_cast<uintptr_t>(bytes.data());
    slots[i].end = reinterpret_cast<uintptr_t>(bytes.data()) + bytes.size();
    return i;
  }
  return -1;
}

void free_slot(int i) {
  if (i < 0) return;
  slots[i].end = 0;
  delete slots[i].text.exchange(nullptr);
  delete slots[i].json.exchange(nullptr);
  slots[i].taken = false;
}

}  // namespace

namespace {

Error cannot_map(const File& file, int number) {
  return Error(ErrorCode::kIo, fmt::format("mapping {}: {}", quoted(file.path(), 400), std::strerror(number)));
}

// Address space for a file: readable memory that is a multiple of a large page away from `at`.
struct Room {
  std::span<std::byte> reserved;
  std::byte* at = nullptr;
};
Result<Room> room_for(const File& file) {
  if (file.size_bytes() == 0) return cannot_map(file, EINVAL);
  const uint64_t bytes = align_up(file.size_bytes(), kPage) + kLargePage + FileMapping::kTailBytes;
  void* const start = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (start == MAP_FAILED) return cannot_map(file, errno);
  const auto address = reinterpret_cast<uintptr_t>(start);
  const uint64_t skipped = align_up(address, uintptr_t{kLargePage}) - address;
  return Room{{static_cast<std::byte*>(start), bytes}, static_cast<std::byte*>(start) + skipped};
}

}  // namespace

Result<std::unique_ptr<FileMapping>> FileMapping::create(const File& file) {
  TRY(const Room room, room_for(file));
  std::unique_ptr<FileMapping> out(new FileMapping);
  out->reserved_ = room.reserved;
  // Shared: pages of the cache and nothing else, and what a handler would find is the file's.
  if (::mmap(room.at, file.size_bytes(), PROT_READ, MAP_SHARED | MAP_FIXED, file.descriptor(), 0) == MAP_FAILED)
    return cannot_map(file, errno);
  // What is not cached yet is read in large pages where the file system has them: decoding is up to a tenth faster.
  ::madvise(room.at, file.size_bytes(), MADV_HUGEPAGE);
  out->file_ = &file;
  out->bytes_ = {room.at, file.size_bytes()};
  out->slot_ = take_slot(file, out->bytes_);
  return out;
}

FileMapping::~FileMapping() {
  free_slot(slot_);
  ::munmap(reserved_.data(), reserved_.size());
}

void FileMapping::populate(uint64_t offset, uint64_t bytes) const {
  const uint64_t begin = offset / kPage * kPage, end = std::min(align_up(offset + bytes, kPage), bytes_.size());
  if (begin >= end) return;
  [[maybe_unused]] void* const at = const_cast<std::byte*>(bytes_.data()) + begin;
#if defined(MADV_POPULATE_READ)
  if (::madvise(at, end - begin, MADV_POPULATE_READ) == 0) return;
#endif
  ::madvise(at, end - begin, MADV_WILLNEED);
}

void FileMapping::release(uint64_t offset, uint64_t bytes) const {
  const uint64_t begin = offset / kPage * kPage, end = std::min(align_up(offset + bytes, kPage), bytes_.size());
  if (begin < end) ::madvise(const_cast<std::byte*>(bytes_.data()) + begin, end - begin, MADV_DONTNEED);
}

void exit_on_mapping_fault(bool json) {
  tells_json = json;
  struct sigaction action {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGBUS, &action, &previous_action);
}

}  // namespace berth
