// base/read_once.h — long reads of files whose bytes are wanted once: past the page cache where it does not have them.
//
// Direct I/O is up to twice as fast as filling the page cache (which needs fresh pages for all of it), and leaves what
// others have there alone. The price is that the next start finds the file cold again, unless somebody asks for it in
// the background.
//
// Thread-safe. Start reading at: read_once_at.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "berth/base/file.h"
#include "berth/base/result.h"

namespace berth {

// File::read_at: what the page cache has comes from there, long stretches that it lacks by direct I/O.
Status read_once_at(const File& file, uint64_t offset, std::span<std::byte> out);

// How many of the range's bytes the page cache has, in whole pages; all of them where the system does not say.
uint64_t cached_bytes(const File& file, uint64_t offset, uint64_t bytes);

// Whether less than three quarters of the file are in the page cache.
bool is_cold(const File& file);

// Reads the file into the page cache from a thread of its own that runs when nothing else wants the processor. Not
// where it is more than half of the memory that is left.
void cache_in_background(const File& file);

}  // namespace berth
