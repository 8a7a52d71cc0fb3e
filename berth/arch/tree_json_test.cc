// Module trees from JSON: what is read, what is refused by name.
#include "berth/arch/tree_json.h"

#include <gtest/gtest.h>

#include <string>

namespace berth::arch {
namespace {

std::string wrap(const std::string& tree, const std::string& more = "") {
  return R"({"format":"berth-tree-1","tree":)" + tree + (more.empty() ? "" : "," + more) + "}";
}

// The message of the refusal, which must come with kCorruptData.
std::string refusal(const std::string& text) {
  const auto t = parse_tree_json(text);
  EXPECT_FALSE(t) << text;
  if (t) return "";
  EXPECT_EQ(t.error().code, ErrorCode::kCorruptData);
  return t.error().message;
}

bool says(const std::string& text, const std::string& part) {
  const std::string message = refusal(text);
  if (message.find(part) != std::string::npos) return true;
  ADD_FAILURE() << "\"" << message << "\" does not say \"" << part << "\"";
  return false;
}

const char* kTwo =
    R"({"c":"M","m":[["a",{"c":"Linear","p":[["weight",[2,3],"BF16"]],"b":[["mask",[],"bool",false]]}],["b",{"c":"Linear","p":[["weight",[2,3],"f32"],["bias",[2],"Float32"]]}]]})";

TEST(TreeJson, ReadsModulesInOrderWithShapesAndTypes) {
  const auto t = parse_tree_json(wrap(
      kTwo, R"("no_split":["Linear"],"ties":[["b.weight","a.weight"]],"no_placement":["x.weight"],"later":{"x":1})"));
  ASSERT_TRUE(t) << t.error().message;
  ASSERT_EQ(t->root.children.size(), 2u);
  EXPECT_EQ(t->root.children[0].name, "a");
  EXPECT_EQ(t->find("a")->parameters[0].dtype, DType::kBF16);
  EXPECT_EQ(t->find("a")->parameters[0].shape, (Shape{2, 3}));
  EXPECT_FALSE(t->find("a")->buffers[0].persistent);
  EXPECT_EQ(t->find("b")->parameters[1].dtype, DType::kF32);
  EXPECT_EQ(t->no_split_classes, std::vector<std::string>{"Linear"});
  EXPECT_EQ(t->ties[0].second, "a.weight");
  EXPECT_EQ(t->no_placement[0], "x.weight");
}

TEST(TreeJson, WritesWhatItReads) {
  const auto t = parse_tree_json(wrap(kTwo, R"("no_split":["Linear"],"ties":[["b.weight","a.weight"]])"));
  ASSERT_TRUE(t);
  const std::string text = tree_json(*t);
  const auto again = parse_tree_json(text);
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(tree_json(*again), text);
}

TEST(TreeJson, SecondNamesMayComeBeforeTheFirst) {
  const auto t = parse_tree_json(wrap(
      R"({"c":"M","m":[["again",{"same_as":"a.x"}],["a",{"c":"A","m":[["x",{"c":"L","p":[["w",[1],"f32"]]}]]}],["third",{"same_as":"again"}]]})",
      R"("ties":[])"));
  ASSERT_TRUE(t) << t.error().message;
  EXPECT_EQ(t->root.children[0].same_as, "a.x");
  EXPECT_EQ(t->root.children[2].same_as, "a.x");  // first spelling, not through another second name
}

TEST(TreeJson, TiesThroughASecondNameComeOutInTheFirstSpelling) {
  const auto t = parse_tree_json(wrap(
      R"({"c":"M","m":[["a",{"c":"L","p":[["w",[1],"f32"]]}],["s",{"same_as":"a"}],["b",{"c":"L","p":[["w",[1],"f32"]]}]]})",
      R"("ties":[["b.w","s.w"]])"));
  ASSERT_TRUE(t) << t.error().message;
  EXPECT_EQ(t->ties[0].second, "a.w");
}

TEST(TreeJson, RefusesWrongFormatAndShape) {
  says("[]", "must be a JSON object");
  says(R"({"tree":{"c":"M"}})", "\"format\" must be");
  says(R"({"format":"berth-tree-2","tree":{"c":"M"}})", "berth-tree-2");
  says(R"({"format":"berth-tree-1"})", "\"tree\" is missing");
  says(wrap("[]"), "the root must be an object");
  says(wrap(R"({"m":[]})"), "no class");
  says(wrap(R"({"c":"M","m":{}})"), "\"m\" of the root must be a list");
  says(wrap(R"({"c":"M","m":[["a"]]})"), "list of 2 values");
  says(wrap(R"({"c":"M","p":[["w",[1]]]})"), "list of 3 values");
  says(wrap(R"({"c":"M","b":[["w",[1],"f32"]]})"), "list of 4 values");
  says(wrap(R"({"c":"M","b":[["w",[1],"f32",1]]})"), "persistent");
}

TEST(TreeJson, RefusesBadNames) {
  says(wrap(R"({"c":"M","m":[["",{"c":"A"}]]})"), "empty name");
  says(wrap(R"({"c":"M","m":[["a.b",{"c":"A"}]]})"), "has a dot");
  says(wrap(R"({"c":"M","m":[["a",{"c":"A"}],["a",{"c":"A"}]]})"), "occurs twice");
  says(wrap(R"({"c":"M","p":[["a",[1],"f32"]],"m":[["a",{"c":"A"}]]})"), "occurs twice");
  says(wrap(R"({"c":"M","m":[[3,{"c":"A"}]]})"), "must be a text");
}

TEST(TreeJson, RefusesBadTensors) {
  says(wrap(R"({"c":"M","p":[["w",[1],"bf17"]]})"), "unknown dtype \"bf17\"");
  says(wrap(R"({"c":"M","p":[["w",[1],"bf17"]]})"), "did you mean \"bf16\"");
  says(wrap(R"({"c":"M","p":[["w",[-1],"f32"]]})"), ">= 0");
  says(wrap(R"({"c":"M","p":[["w",[1.5],"f32"]]})"), ">= 0");
  says(wrap(R"({"c":"M","p":[["w",3,"f32"]]})"), "must be a list");
  says(wrap(R"({"c":"M","p":[["w",[4294967296,4294967296],"f32"]]})"), "no possible size");
  says(wrap(R"({"c":"M","p":[["w",[1152921504606846976],"i8"],["v",[1],"i8"]]})"), "no possible size");
  std::string many = "[";
  for (int i = 0; i < 65; ++i) many += i ? ",1" : "1";
  says(wrap(R"({"c":"M","p":[["w",)" + many + R"(],"f32"]]})"), "65 dimensions");
}

TEST(TreeJson, RefusesSecondNamesOfNothingAndOfThemselves) {
  says(wrap(R"({"c":"M","m":[["a",{"same_as":"layer"}],["layers",{"c":"A"}]]})"), "did you mean \"layers\"");
  says(wrap(R"({"c":"M","m":[["a",{"same_as":"a"}]]})"), "names no module");
  says(wrap(R"({"c":"M","m":[["a",{"same_as":"b"}],["b",{"same_as":"a"}]]})"), "names no module");
  says(wrap(R"({"c":"M","m":[["a",{"same_as":""}]]})"), "contains it");
  says(wrap(R"({"c":"M","m":[["a",{"c":"A","m":[["b",{"same_as":"a"}]]}]]})"), "contains it");
  // a holds (by a second name) b, and b holds a
  says(
      wrap(
          R"({"c":"M","m":[["a",{"c":"A","m":[["x",{"same_as":"b"}]]}],["b",{"c":"B","m":[["y",{"same_as":"a"}]]}]]})"),
      "contains it");
  says(wrap(R"({"same_as":"a"})"), "the root cannot be");
}

TEST(TreeJson, RefusesTiesBetweenWhatIsNoParameter) {
  says(wrap(kTwo, R"("ties":[["b.wieght","a.weight"]])"), "did you mean \"b.weight\"");
  says(wrap(kTwo, R"("ties":[["b.weight","a.mask"]])"), "no parameter");
  says(wrap(kTwo, R"("ties":[["a.weight","a.weight"]])"), "tied to itself");
  says(wrap(kTwo, R"("ties":["a"])"), "pair of parameter paths");
  says(wrap(kTwo, R"("ties":[["b.weight","a.weight"],["b.weight","a.weight"]])"), "two ties");
  says(wrap(kTwo, R"("no_split":"Linear")"), "list of texts");
}

TEST(TreeJson, RefusesHostileDepth) {
  std::string deep, close;
  for (int i = 0; i < 5000; ++i) {
    deep += R"({"c":"A","m":[["a",)";
    close += "]]}";
  }
  EXPECT_FALSE(parse_tree_json(wrap(deep + R"({"c":"A"})" + close)));
}

}  // namespace
}  // namespace berth::arch
