// base/read_once.cc — see read_once.h.
#include "berth/base/read_once.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <system_error>
#include <thread>

namespace berth {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kBuffer = uint64_t{1} << 20;

// The same file opened for direct I/O; not by its name, which may mean another one by now.
class Direct {
 public:
  explicit Direct(const File& file) {
#if defined(O_DIRECT)
    descriptor_ = ::open(fmt::format("/proc/self/fd/{}", file.descriptor()).c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT);
#else
    (void)file;
#endif
  }
  ~Direct() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  Direct(const Direct&) = delete;
  Direct& operator=(const Direct&) = delete;

  // Bytes [at, at + part.size()), all of them or false.
  bool read(uint64_t at, std::span<std::byte> part, bool aligned) const {
    if (descriptor_ < 0) return false;
    if (aligned) {
      const ssize_t got = ::pread(descriptor_, part.data(), part.size(), static_cast<off_t>(at));
      return got == static_cast<ssize_t>(part.size());
    }
    // Whole pages of the file through a buffer, since neither the range nor `part` need be aligned.
    struct Free {
      void operator()(std::byte* p) const { std::free(p); }
    };
    thread_local const std::unique_ptr<std::byte, Free> buffer(
        static_cast<std::byte*>(std::aligned_alloc(kPage, kBuffer)));
    const uint64_t begin = at / kPage * kPage, end = at + part.size();
    const uint64_t whole = (end - begin + kPage - 1) / kPage * kPage;
    const ssize_t got = buffer ? ::pread(descriptor_, buffer.get(), whole, static_cast<off_t>(begin)) : -1;
    if (got < 0 || begin + static_cast<uint64_t>(got) < end) return false;
    std::memcpy(part.data(), buffer.get() + (at - begin), part.size());
    return true;
  }

 private:
  int descriptor_ = -1;
};

}  // namespace

uint64_t cached_bytes(const File& file, uint64_t offset, uint64_t bytes) {
#if defined(__linux__)
  // cachestat(2), which the C library does not have yet
  struct Range {
    uint64_t offset, bytes;
  } range{offset, bytes};
  struct Pages {
    uint64_t cached, dirty, writeback, evicted, recently_evicted;
  } pages{};
  constexpr long kCachestat = 451;
  if (bytes > 0 && ::syscall(kCachestat, file.descriptor(), &range, &pages, 0u) == 0)
    return std::min(bytes, pages.cached * kPage);
#else
  (void)file, (void)offset;
#endif
  return bytes;
}

bool is_cold(const File& file) { return cached_bytes(file, 0, file.size_bytes()) < file.size_bytes() / 4 * 3; }

Status read_once_at(const File& file, uint64_t offset, std::span<std::byte> out) {
  constexpr uint64_t kWorthIt = 16 * kPage;
  if (out.size() < kWorthIt || cached_bytes(file, offset, out.size()) + kPage >= out.size())
    return file.read_at(offset, out);
  const Direct direct(file);
  for (uint64_t done = 0; done < out.size();) {
    const uint64_t at = offset + done, left = out.size() - done;
    const bool aligned =
        at % kPage == 0 && left >= kPage && reinterpret_cast<uintptr_t>(out.data() + done) % kPage == 0;
    const uint64_t n = aligned ? std::min(left, 4 * kBuffer) / kPage * kPage : std::min(left, kBuffer - at % kPage);
    const auto part = out.subspan(done, n);
    if (!direct.read(at, part, aligned)) TRY_STATUS(file.read_at(at, part));  // which also says what is wrong
    done += n;
  }
  return {};
}

void cache_in_background(const File& file) {
#if defined(__linux__)
  const auto meminfo = read_kernel_file("/proc/meminfo");
  const size_t key = meminfo ? meminfo->find("MemAvailable:") : std::string::npos;
  if (key == std::string::npos) return;
  const uint64_t available = std::strtoull(meminfo->c_str() + key + 13, nullptr, 10) * 1024;
  if (file.size_bytes() > available / 2) return;
  const int fd = ::fcntl(file.descriptor(), F_DUPFD_CLOEXEC, 0);
  if (fd < 0) return;
  try {
    std::thread([fd, size = file.size_bytes()] {
      sched_param none{};
      ::sched_setscheduler(0, SCHED_IDLE, &none);  // of this thread
      // By way of a mapping, whose pages the kernel then makes large ones; in short steps, as the process may end
      // meanwhile.
      constexpr uint64_t kStep = uint64_t{2} << 20;
      void* const at = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
      ::close(fd);
      if (at == MAP_FAILED) return;
      ::madvise(at, size, MADV_HUGEPAGE);
#if defined(MADV_POPULATE_READ)
      for (uint64_t done = 0; done < size; done += kStep)
        if (::madvise(static_cast<std::byte*>(at) + done, std::min(kStep, size - done), MADV_POPULATE_READ) != 0) break;
#endif
      ::munmap(at, size);
    }).detach();
  } catch (const std::system_error&) {
    ::close(fd);  // no thread: then not
  }
#else
  (void)file;
#endif
}

}  // namespace berth
