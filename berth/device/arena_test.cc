// device/arena_test.cc — the limit to the byte, the counts, and memory that is used again.
#include "berth/device/arena.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "berth/base/json.h"
#include "berth/device/cpu/memory.h"

namespace berth::device {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

Arena arena_of(uint64_t budget, size_t granularity = 64) {
  return Arena("emu:0", budget, std::make_shared<HostRegions>(), granularity);
}

TEST(Arena, ExactlyFullFitsAndOneByteMoreIsRefused) {
  Arena arena = arena_of(10 * 64);
  auto first = arena.allocate(7 * 64, Tag::kWeights);
  ASSERT_TRUE(first);
  auto rest = arena.allocate(3 * 64, Tag::kKv);
  ASSERT_TRUE(rest) << rest.error().message;
  EXPECT_EQ(arena.available_bytes(), 0u);
  EXPECT_FALSE(arena.allocate(1, Tag::kWorkspace));
  rest->reset();
  EXPECT_FALSE(arena.allocate(3 * 64 + 1, Tag::kKv));
  EXPECT_TRUE(arena.allocate(3 * 64, Tag::kKv));
}

TEST(Arena, RefusalNamesDeviceTagNeededAndAvailable) {
  Arena arena = arena_of(1000);
  auto held = arena.allocate(300, Tag::kWeights);
  ASSERT_TRUE(held);
  const auto refused = arena.allocate(2000, Tag::kKv);
  ASSERT_FALSE(refused);
  const Error& e = refused.error();
  EXPECT_EQ(e.code, ErrorCode::kDoesNotFit);
  for (const char* part : {"\"emu:0\"", "kv", "2048 bytes", "680 bytes", "1368 bytes are missing"})
    EXPECT_NE(e.message.find(part), std::string::npos) << part << " in " << e.message;
  const auto details = JsonDocument::parse(e.details_json);
  ASSERT_TRUE(details);
  EXPECT_EQ(details->root()["device"].as_string(), "emu:0");
  EXPECT_EQ(details->root()["tag"].as_string(), "kv");
  EXPECT_EQ(details->root()["needed_bytes"].as_uint64(), 2048u);
  EXPECT_EQ(details->root()["available_bytes"].as_uint64(), 680u);
  EXPECT_EQ(details->root()["missing_bytes"].as_uint64(), 1368u);
  EXPECT_EQ(details->root()["budget_bytes"].as_uint64(), 1000u);
  EXPECT_EQ(arena.usage()[Tag::kKv], ArenaUsage::Count{}) << "a refusal counts nothing";
}

TEST(Arena, ABudgetOfZeroRefusesTheFirstByte) {
  Arena arena = arena_of(0);
  EXPECT_FALSE(arena.allocate(1, Tag::kWeights));
  EXPECT_TRUE(arena.allocate(0, Tag::kWeights));
  EXPECT_EQ(arena.mapped_bytes(), 0u);
}

TEST(Arena, SizesNearTheTopOfTheRangeAreRefusedNotWrapped) {
  Arena arena = arena_of(1000);
  for (const uint64_t bytes : {UINT64_MAX, UINT64_MAX - 63, uint64_t{1} << 63, (uint64_t{1} << 60) + 1}) {
    const auto refused = arena.allocate(bytes, Tag::kWeights);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::kDoesNotFit);
  }
  Arena endless = arena_of(UINT64_MAX);
  const auto refused = endless.allocate(uint64_t{1} << 61, Tag::kWeights);
  ASSERT_FALSE(refused) << "the system, not the budget, refuses";
  EXPECT_EQ(refused.error().code, ErrorCode::kDevice);
}

TEST(Arena, CountsAreRoundedToTheGranularityPerTagAndInTotal) {
  Arena arena = arena_of(kMiB, 512);
  EXPECT_EQ(arena.counted_bytes(1), 512u);
  auto a = arena.allocate(1, Tag::kWeights);
  auto b = arena.allocate(513, Tag::kWeights);
  auto c = arena.allocate(1024, Tag::kKv);
  ASSERT_TRUE(a && b && c);
  EXPECT_EQ(a->size_bytes(), 1u);
  const ArenaUsage usage = arena.usage();
  EXPECT_EQ(usage[Tag::kWeights].used_bytes, 1536u);
  EXPECT_EQ(usage[Tag::kKv].used_bytes, 1024u);
  EXPECT_EQ(usage[Tag::kWorkspace].used_bytes, 0u);
  EXPECT_EQ(usage.total.used_bytes, 2560u);
  for (const Buffer* x : {&*a, &*b, &*c}) EXPECT_EQ(reinterpret_cast<uintptr_t>(x->data()) % 512, 0u);
}

TEST(Arena, PeaksAreOfEachTagAndOfTheTotalAtOneMoment) {
  Arena arena = arena_of(kMiB);
  {
    auto staging = arena.allocate(640, Tag::kStaging);
    ASSERT_TRUE(staging);
  }
  auto workspace = arena.allocate(320, Tag::kWorkspace);
  ASSERT_TRUE(workspace);
  const ArenaUsage usage = arena.usage();
  EXPECT_EQ(usage[Tag::kStaging], (ArenaUsage::Count{0, 640}));
  EXPECT_EQ(usage[Tag::kWorkspace], (ArenaUsage::Count{320, 320}));
  EXPECT_EQ(usage.total, (ArenaUsage::Count{320, 640})) << "not 960: they were never there together";
  arena.reset_peaks();
  EXPECT_EQ(arena.usage()[Tag::kStaging], (ArenaUsage::Count{0, 0}));
  EXPECT_EQ(arena.usage().total, (ArenaUsage::Count{320, 320}));
}

TEST(Arena, AlignmentsAreKeptAndBadOnesRefused) {
  Arena arena = arena_of(64 * kMiB);
  std::vector<Buffer> held;
  for (const size_t alignment : {1u, 8u, 64u, 128u, 4096u, 65536u, 2u << 20}) {
    auto buffer = arena.allocate(100, Tag::kWeights, alignment);
    ASSERT_TRUE(buffer) << alignment;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % std::max<size_t>(alignment, 64), 0u);
    held.push_back(std::move(*buffer));
  }
  EXPECT_EQ(arena.usage().total.used_bytes, 7 * 128u) << "what alignment skips is not counted";
  for (const size_t alignment : {size_t{0}, size_t{3}, size_t{96}, size_t{4} << 20}) {
    const auto buffer = arena.allocate(100, Tag::kWeights, alignment);
    ASSERT_FALSE(buffer) << alignment;
    EXPECT_EQ(buffer.error().code, ErrorCode::kInvalidArgument);
  }
}

TEST(Arena, FreedMemoryIsUsedAgain) {
  Arena arena = arena_of(256 * kMiB);
  const std::byte* first = nullptr;
  {
    auto buffer = arena.allocate(100 * kMiB, Tag::kWeights);
    ASSERT_TRUE(buffer);
    first = buffer->data();
  }
  const uint64_t mapped = arena.mapped_bytes();
  auto again = arena.allocate(100 * kMiB, Tag::kKv);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->data(), first);
  EXPECT_EQ(arena.mapped_bytes(), mapped);
}

TEST(Arena, TrimGivesEmptyRegionsBackAndKeepsTheOthers) {
  Arena arena = arena_of(1024 * kMiB);
  auto small = arena.allocate(100, Tag::kWeights);
  auto large = arena.allocate(200 * kMiB, Tag::kWeights);
  ASSERT_TRUE(small && large);
  small->data()[0] = std::byte{42};
  const uint64_t mapped = arena.mapped_bytes();
  large->reset();
  arena.trim();
  EXPECT_LT(arena.mapped_bytes(), mapped);
  EXPECT_GT(arena.mapped_bytes(), 0u);
  EXPECT_EQ(small->data()[0], std::byte{42});
  small->reset();
  arena.trim();
  EXPECT_EQ(arena.mapped_bytes(), 0u);
}

TEST(Arena, FragmentsDoNotKeepAFreeArenaFromBeingFilled) {
  // Half of the budget free in pieces, then all of it: the budget decides, not the pieces.
  Arena arena = arena_of(64 * kMiB);
  std::vector<Buffer> pieces;
  for (int i = 0; i < 64; ++i) {
    auto piece = arena.allocate(kMiB, Tag::kWeights);
    ASSERT_TRUE(piece);
    pieces.push_back(std::move(*piece));
  }
  for (size_t i = 0; i < 64; i += 2) pieces[i].reset();
  auto half = arena.allocate(32 * kMiB, Tag::kKv);
  ASSERT_TRUE(half) << half.error().message;
  EXPECT_FALSE(arena.allocate(1, Tag::kKv));
  half->reset();
  pieces.clear();
  EXPECT_TRUE(arena.allocate(64 * kMiB, Tag::kKv));
}

TEST(Arena, ReserveMakesOnePieceAndCountsNothing) {
  Arena arena = arena_of(300 * kMiB);
  ASSERT_TRUE(arena.reserve(200 * kMiB));
  EXPECT_GE(arena.mapped_bytes(), 200 * kMiB);
  EXPECT_EQ(arena.usage().total, ArenaUsage::Count{});
  const uint64_t mapped = arena.mapped_bytes();
  auto a = arena.allocate(150 * kMiB, Tag::kWeights);
  auto b = arena.allocate(50 * kMiB, Tag::kWeights);
  ASSERT_TRUE(a && b);
  EXPECT_EQ(arena.mapped_bytes(), mapped);
  EXPECT_EQ(b->data(), a->data() + 150 * kMiB);
  ASSERT_TRUE(arena.reserve(UINT64_MAX)) << "what the budget has left";
  EXPECT_TRUE(arena.allocate(100 * kMiB, Tag::kKv));
}

TEST(Buffer, MovesCarryTheBytesAndOutliveTheArena) {
  Buffer kept;
  {
    Arena arena = arena_of(kMiB);
    auto buffer = arena.allocate(1000, Tag::kKv);
    ASSERT_TRUE(buffer);
    kept = std::move(*buffer);
    EXPECT_FALSE(*buffer);  // NOLINT: moved from on purpose
    EXPECT_EQ(arena.usage()[Tag::kKv].used_bytes, 1024u);
    Buffer& same = kept;
    kept = std::move(same);
    EXPECT_TRUE(kept);
    Arena moved = std::move(arena);
    EXPECT_EQ(moved.usage()[Tag::kKv].used_bytes, 1024u);
  }
  std::memset(kept.data(), 7, kept.size_bytes());
  EXPECT_EQ(kept.tag(), Tag::kKv);
  kept.reset();
  kept.reset();
  EXPECT_EQ(kept.data(), nullptr);
}

TEST(Arena, RandomAllocationsNeverOverlapAndCountsStayExact) {
  Arena arena = arena_of(8 * kMiB);
  std::mt19937 random(7);
  struct Held {
    Buffer buffer;
    unsigned char mark;
  };
  std::vector<Held> held;
  uint64_t used = 0, peak = 0;
  for (int step = 0; step < 4000; ++step) {
    if (random() % 3 != 0 || held.empty()) {
      const uint64_t bytes = 1 + random() % 60000;
      const uint64_t counted = (bytes + 63) / 64 * 64;
      auto buffer = arena.allocate(bytes, static_cast<Tag>(random() % 4), size_t{64} << random() % 5);
      ASSERT_EQ(buffer.has_value(), counted <= 8 * kMiB - used) << "only the budget refuses";
      if (!buffer) continue;
      used += counted;
      peak = std::max(peak, used);
      const auto mark = static_cast<unsigned char>(random());
      std::memset(buffer->data(), mark, bytes);
      held.push_back({std::move(*buffer), mark});
    } else {
      const size_t i = random() % held.size();
      for (const std::byte b : held[i].buffer.bytes()) ASSERT_EQ(static_cast<unsigned char>(b), held[i].mark);
      used -= arena.counted_bytes(held[i].buffer.size_bytes());
      held[i] = std::move(held.back());
      held.pop_back();
    }
    ASSERT_EQ(arena.usage().total, (ArenaUsage::Count{used, peak}));
  }
  held.clear();
  EXPECT_EQ(arena.usage().total, (ArenaUsage::Count{0, peak}));
  arena.trim();
  EXPECT_EQ(arena.mapped_bytes(), 0u) << "neighbours were joined back into whole regions";
}

TEST(Arena, ThreadsNeverExceedTheBudgetTogether) {
  Arena arena = arena_of(100 * 64);
  std::atomic<int> granted{0};
  std::vector<std::vector<Buffer>> held(4);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i)
        if (auto buffer = arena.allocate(64, Tag::kWorkspace)) {
          ++granted;
          held[t].push_back(std::move(*buffer));
        }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(granted, 100);
  EXPECT_EQ(arena.usage().total, (ArenaUsage::Count{6400, 6400}));
}

TEST(Tag, NamesAreThoseOfReports) {
  EXPECT_EQ(tag_name(Tag::kWeights), "weights");
  EXPECT_EQ(tag_name(Tag::kKv), "kv");
  EXPECT_EQ(tag_name(Tag::kWorkspace), "workspace");
  EXPECT_EQ(tag_name(Tag::kStaging), "staging");
}

}  // namespace
}  // namespace berth::device
