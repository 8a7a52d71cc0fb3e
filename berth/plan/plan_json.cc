// plan/plan_json.cc — see plan_json.h. The field lists are the fields() functions; Writer and Reader follow them.
#include "berth/plan/plan_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>

#include "berth/base/strings.h"
#include "berth/plan/cost.h"
#include "berth/tensor/dtype.h"

namespace berth::plan {
namespace {

// A device as JSON: an integer for accelerators, else a text.
struct DeviceField {
  std::string& id;
};
struct DTypeField {
  DType& dtype;
};

template <typename Enum>
struct EnumName {
  Enum value;
  std::string_view name;
};
constexpr EnumName<Access> kAccessNames[] = {
    {Access::kCompute, "compute"}, {Access::kGather, "gather"}, {Access::kStream, "stream"}};
constexpr EnumName<sizing::UnitKind> kKindNames[] = {{sizing::UnitKind::kAttention, "attention"},
                                                     {sizing::UnitKind::kMlp, "mlp"},
                                                     {sizing::UnitKind::kExpertBank, "expert_bank"},
                                                     {sizing::UnitKind::kLayer, "layer"},
                                                     {sizing::UnitKind::kHead, "head"},
                                                     {sizing::UnitKind::kTable, "table"}};

// --- the field lists ---

template <typename Archive>
void fields(Archive& a, DeviceUse& d) {
  a("id", d.id);
  a("machine_id", d.machine_id);
  a("budget_bytes", d.budget_bytes);
  a("weights_bytes", d.weights_bytes);
  a("kv_bytes", d.kv_bytes);
  a("workspace_bytes", d.workspace_bytes);
  a("staging_bytes", d.staging_bytes);
  a("overhead_bytes", d.overhead_bytes);
  a("margin_bytes", d.margin_bytes);
  a.derived("free_bytes", d.free_bytes());
}

template <typename Archive>
void fields(Archive& a, PlacedUnit& u) {
  a("path", u.path);
  a("paths", u.paths);
  a.optional("kind", u.kind, kKindNames);
  a.optional("layer", u.layer);
  a("device", DeviceField{u.device});
  a("computed_on", DeviceField{u.computed_on});
  a("access", u.access, kAccessNames);
  a("access_prefill", u.access_prefill, kAccessNames);
  a("stored_bytes", u.stored_bytes);
  a("touched_bytes", u.touched_bytes);
  a("kv_bytes", u.kv_bytes);
  a("reason", u.reason);
}

template <typename Archive>
void fields(Archive& a, Estimate& e) {
  a("decode_tokens_per_s", e.decode_tokens_per_s);
  a("prefill_tokens_per_s", e.prefill_tokens_per_s);
  a("cuts", e.cuts);
}

template <typename Archive>
void fields(Archive& a, Certificate& c) {
  a("objective", c.objective);
  a("value", c.value_s);
  a("bound", c.bound_s);
  a("gap", c.gap_s);
  a("bound_any", c.bound_any_s);
  a("optimal", c.optimal);
  a.optional("family", c.family);
  a.optional("labels", c.labels);
}

template <typename Archive>
void fields(Archive& a, PlanDocument::Model& m) {
  a("name", m.name);
  a("architecture", m.architecture);
  a("dtype", m.dtype);
  a("parameters", m.parameters);
  a("quantization", m.quantization);
}

struct Inputs {
  PlanDocument& document;
};
template <typename Archive>
void fields(Archive& a, Inputs in) {
  sizing::RunShape& s = in.document.plan.shape;
  a.raw_object("options", in.document.options);
  a("machine", in.document.machine);
  a("checkpoint", in.document.checkpoint);
  a("ctx_size", s.ctx_size);
  a("batch", s.batch);
  a("kv_dtype", DTypeField{s.kv_dtype});
  a("prefill_chunk", s.prefill_chunk);
  a.optional("logit_rows", s.logit_rows);
  a.optional("wanted_rows", s.wanted_rows);
  a.optional("int8_numerics", s.int8_numerics);
  a.optional("threads", s.threads);
}

template <typename Archive>
void fields(Archive& a, sizing::Unit& u) {
  a("stored_bytes", u.stored_bytes);
  a("stored_bytes_512", u.stored_bytes_512);
  a("disk_bytes", u.disk_bytes);
  a("touched_bytes", u.touched_bytes);
  a("kv_bytes", u.kv_bytes);
  a("kv_new_bytes", u.kv_new_bytes);
  a("kv_source", u.kv_source);
  a("flops", u.flops);
  a("input_bytes", u.input_bytes);
  a("prefill_input_bytes", u.prefill_input_bytes);
  a("prefill_flops", u.prefill_flops);
  a("workspace_bytes", u.workspace_bytes);
  a("grain_bytes", u.grain_bytes);
  a.optional("vector_bytes", u.vector_bytes);
  a.optional("moved_bytes", u.moved_bytes);
  a("consumer", u.consumer);
  a("row_bytes", u.row_bytes);
  a("stored_with", u.stored_with);
}

template <typename Archive>
void fields(Archive& a, sizing::UnitTable& t) {
  a("chain_size", t.chain_size);
  a("logits_bytes", t.logits_bytes);
  a.list("units", t.units, [](auto& inner, sizing::Unit& u) { fields(inner, u); });
}

template <typename Archive>
void fields(Archive& a, PlanDocument& d) {
  a.format();
  a("berth", d.berth);
  a.object("inputs", [&](auto& inner) { fields(inner, Inputs{d}); });
  a.object("model", [&](auto& inner) { fields(inner, d.model); });
  a("strategy", d.plan.strategy);
  a.nullable("compat", d.compat);
  a.derived("fits", d.fits);
  a.said("error", d.error);
  a.said("library_error", d.library_error);
  a("device_map", d.device_map);
  a.budgets(d.budgets, d.plan.devices);
  a.list("devices", d.plan.devices, [](auto& inner, DeviceUse& x) { fields(inner, x); });
  if (a.whole()) a.list("units", d.plan.units, [](auto& inner, PlacedUnit& x) { fields(inner, x); });
  a.object("estimate", [&](auto& inner) { fields(inner, d.plan.estimate); });
  a.maybe("certificate", d.plan.certificate, [](auto& inner, Certificate& x) { fields(inner, x); });
  a("memory_footprint_bytes", d.plan.memory_footprint_bytes);
  a("warnings", d.plan.warnings);
  if (a.whole()) a.sizes(d.sizes);
}

// --- writing ---

class Writer {
 public:
  Writer(JsonWriter& out, bool whole) : out_(out), whole_(whole) {}

  bool whole() const { return whole_; }
  void sizes(sizing::UnitTable& table) {
    if (table.units.empty()) return;
    object("sizes", [&](Writer& inner) { fields(inner, table); });
  }

  void operator()(std::string_view name, std::string& text) { out_.member(name, text); }
  void operator()(std::string_view name, uint64_t& n) { out_.member(name, n); }
  void operator()(std::string_view name, int64_t& n) { out_.member(name, n); }
  void operator()(std::string_view name, int32_t& n) { out_.member(name, static_cast<int64_t>(n)); }
  void operator()(std::string_view name, double& d) { out_.member(name, d); }
  void operator()(std::string_view name, bool& b) { out_.member(name, b); }
  void operator()(std::string_view name, std::vector<std::string>& texts) {
    out_.key(name).begin_array();
    for (const std::string& t : texts) out_.value(t);
    out_.end_array();
  }
  void operator()(std::string_view name, DeviceField d) {
    out_.key(name);
    DeviceName::from_key(d.id).write(out_);
  }
  void operator()(std::string_view name, DTypeField d) { out_.member(name, dtype_info(d.dtype).torch); }
  void operator()(std::string_view name, machine::Machine& m) {
    out_.key(name);
    machine::write_machine(m, out_);
  }
  void operator()(std::string_view name, DeviceMap& map) {
    out_.key(name).begin_object();
    for (const auto& [path, device] : map.entries) {
      out_.key(path);
      device.write(out_);
    }
    out_.end_object();
  }
  template <typename Enum, size_t N>
  void operator()(std::string_view name, Enum& value, const EnumName<Enum> (&names)[N]) {
    for (const EnumName<Enum>& n : names)
      if (n.value == value) out_.member(name, n.name);
  }
  template <typename... T>
  void optional(std::string_view name, T&&... value) {
    (*this)(name, std::forward<T>(value)...);
  }
  template <typename T>
  void derived(std::string_view name, T value) {
    out_.member(name, value);
  }
  void format() { out_.member("format", kPlanFormat); }
  void said(std::string_view name, std::string& json) {
    if (!json.empty()) out_.key(name).raw(json);
  }
  void raw_object(std::string_view name, std::string& json) { out_.key(name).raw(json.empty() ? "{}" : json); }
  void nullable(std::string_view name, std::string& text) {
    out_.key(name);
    if (text.empty())
      out_.null();
    else
      out_.value(text);
  }
  void budgets(const std::string& json, std::vector<DeviceUse>& devices) {
    out_.key("budgets");
    if (!json.empty()) {
      out_.raw(json);
      return;
    }
    out_.begin_object();
    for (const DeviceUse& d : devices) out_.member(d.id, d.budget_bytes);
    out_.end_object();
  }
  template <typename F>
  void object(std::string_view name, F&& f) {
    out_.key(name).begin_object();
    f(*this);
    out_.end_object();
  }
  template <typename T, typename F>
  void list(std::string_view name, std::vector<T>& items, F&& f) {
    out_.key(name).begin_array();
    for (T& item : items) {
      out_.begin_object();
      f(*this, item);
      out_.end_object();
    }
    out_.end_array();
  }
  template <typename T, typename F>
  void maybe(std::string_view name, std::optional<T>& item, F&& f) {
    out_.key(name);
    if (!item) {
      out_.null();
      return;
    }
    out_.begin_object();
    f(*this, *item);
    out_.end_object();
  }

 private:
  JsonWriter& out_;
  bool whole_;
};

// --- reading: the first error stands, everything after it is skipped ---

class Reader {
 public:
  Reader(JsonView object, std::string place, std::optional<Error>& error)
      : object_(object), place_(std::move(place)), error_(error) {}

  bool whole() const { return true; }
  void sizes(sizing::UnitTable& table) {
    if (object_.contains("sizes")) object("sizes", [&](Reader& inner) { fields(inner, table); });
  }

  void operator()(std::string_view name, std::string& text) {
    if (const auto v = find(name, "a text", [](JsonView j) { return j.as_string(); })) text = std::string(*v);
  }
  void operator()(std::string_view name, uint64_t& n) {
    if (const auto v = find(name, "a whole number that is not negative", [](JsonView j) { return j.as_uint64(); }))
      n = *v;
  }
  void operator()(std::string_view name, int64_t& n) {
    const auto v = find(name, "a whole number that is not negative", [](JsonView j) { return j.as_int64(); });
    if (!v) return;
    if (*v < 0) return fail(name, "a whole number that is not negative");
    n = *v;
  }
  void operator()(std::string_view name, int32_t& n) {
    const auto v = find(name, "a small whole number", [](JsonView j) { return j.as_int64(); });
    if (!v) return;
    if (*v < -1 || *v > std::numeric_limits<int32_t>::max()) return fail(name, "a small whole number");
    n = static_cast<int32_t>(*v);
  }
  void operator()(std::string_view name, double& d) {
    if (const auto v = find(name, "a number", [](JsonView j) { return j.as_double(); })) d = *v;
  }
  void operator()(std::string_view name, bool& b) {
    if (const auto v = find(name, "true or false", [](JsonView j) { return j.as_bool(); })) b = *v;
  }
  void operator()(std::string_view name, std::vector<std::string>& texts) {
    const auto v =
        find(name, "an array of texts", [](JsonView j) { return j.is_array() ? std::optional(j) : std::nullopt; });
    if (!v) return;
    texts.clear();
    for (const JsonView item : v->elements()) {
      const auto text = item.as_string();
      if (!text) return fail(name, "an array of texts");
      texts.emplace_back(*text);
    }
  }
  void operator()(std::string_view name, DeviceField d) {
    const auto v = find(name, "a device (0, \"cpu\", \"disk\")", [](JsonView j) { return device_id(j); });
    if (v) d.id = *v;
  }
  void operator()(std::string_view name, DTypeField d) {
    const auto v = find(name, "a dtype", [](JsonView j) { return j.as_string(); });
    if (!v) return;
    const auto dtype = dtype_from_name(*v);
    if (!dtype || (*dtype != DType::kF32 && *dtype != DType::kF16 && *dtype != DType::kBF16))
      return fail(name, "a dtype (float32, float16, bfloat16)");
    d.dtype = *dtype;
  }
  void operator()(std::string_view name, machine::Machine& m) {
    const auto v = find(name, "an object", [](JsonView j) { return j.is_object() ? std::optional(j) : std::nullopt; });
    if (!v) return;
    auto read = machine::machine_from_json(*v);
    if (!read) {
      error_ = read.error().with_context(fmt::format("reading the plan's {}", path(name)));
      return;
    }
    m = *std::move(read);
  }
  void operator()(std::string_view name, DeviceMap& map) {
    const auto v = find(name, "an object", [](JsonView j) { return j.is_object() ? std::optional(j) : std::nullopt; });
    if (!v) return;
    auto read = device_map_from_json(*v);
    if (!read) {
      error_ = read.error().with_context(fmt::format("reading the plan's {}", path(name)));
      return;
    }
    map = *std::move(read);
  }
  template <typename Enum, size_t N>
  void operator()(std::string_view name, Enum& value, const EnumName<Enum> (&names)[N]) {
    std::vector<std::string> accepted;
    for (const EnumName<Enum>& n : names) accepted.emplace_back(n.name);
    const std::string expected = "one of " + join(accepted, ", ");
    const auto v = find(name, expected, [](JsonView j) { return j.as_string(); });
    if (!v) return;
    for (const EnumName<Enum>& n : names)
      if (n.name == *v) {
        value = n.value;
        return;
      }
    fail(name, expected);
  }
  template <typename... T>
  void optional(std::string_view name, T&&... value) {
    if (object_.contains(name)) (*this)(name, std::forward<T>(value)...);
  }
  template <typename T>
  void derived(std::string_view, T) {}
  void said(std::string_view, std::string&) {}
  void format() {
    const auto v = find("format", "a text", [](JsonView j) { return j.as_string(); });
    if (!v || *v == kPlanFormat) return;
    error_ = Error(
        ErrorCode::kInvalidArgument,
        fmt::format("this is not a plan that can be read: its format is {}, expected \"{}\"", quoted(*v), kPlanFormat),
        {"Make the plan again with: berth plan MODEL --json"});
  }
  void raw_object(std::string_view name, std::string& json) {
    if (const auto v =
            find(name, "an object", [](JsonView j) { return j.is_object() ? std::optional(j) : std::nullopt; }))
      json = v->text();
  }
  void nullable(std::string_view name, std::string& text) {
    text.clear();
    if (object_.contains(name) && !object_[name].is_null()) (*this)(name, text);
  }
  void budgets(std::string&, std::vector<DeviceUse>&) {}
  template <typename F>
  void object(std::string_view name, F&& f) {
    const auto v = find(name, "an object", [](JsonView j) { return j.is_object() ? std::optional(j) : std::nullopt; });
    if (!v) return;
    Reader inner(*v, path(name) + ".", error_);
    f(inner);
  }
  template <typename T, typename F>
  void list(std::string_view name, std::vector<T>& items, F&& f) {
    const auto v = find(name, "an array", [](JsonView j) { return j.is_array() ? std::optional(j) : std::nullopt; });
    if (!v) return;
    items.clear();
    size_t index = 0;
    for (const JsonView item : v->elements()) {
      const std::string at = fmt::format("{}[{}]", path(name), index++);
      if (!item.is_object()) {
        error_ = wrong(at, "an object", item);
        return;
      }
      Reader inner(item, at + ".", error_);
      items.emplace_back();
      f(inner, items.back());
      if (error_) return;
    }
  }
  template <typename T, typename F>
  void maybe(std::string_view name, std::optional<T>& item, F&& f) {
    item.reset();
    if (error_ || !object_.contains(name) || object_[name].is_null()) return;
    item.emplace();
    object(name, [&](Reader& inner) { f(inner, *item); });
  }

 private:
  static std::optional<std::string> device_id(JsonView j) {
    if (const auto n = j.as_int64()) return *n < 0 ? std::nullopt : std::optional(std::to_string(*n));
    if (const auto text = j.as_string(); text && !text->empty()) return std::string(*text);
    return std::nullopt;
  }
  std::string path(std::string_view name) const { return place_ + std::string(name); }
  static Error wrong(const std::string& at, std::string_view expected, JsonView found) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("reading a plan: {} must be {}, found {}", at, expected,
                             found.is_object() || found.is_array() ? std::string(json_type_name(found.type()))
                                                                   : escaped(found.text().substr(0, 80))));
  }
  void fail(std::string_view name, std::string_view expected) { error_ = wrong(path(name), expected, object_[name]); }
  template <typename F>
  auto find(std::string_view name, std::string_view expected, F&& convert) -> decltype(convert(JsonView())) {
    if (error_) return std::nullopt;
    const JsonView v = object_[name];
    if (!v.valid()) {
      error_ = Error(ErrorCode::kInvalidArgument, fmt::format("reading a plan: {} is missing", path(name)));
      return std::nullopt;
    }
    auto value = convert(v);
    if (!value) fail(name, expected);
    return value;
  }

  JsonView object_;
  std::string place_;
  std::optional<Error>& error_;
};

Error differs(const std::string& what, const std::string& recorded, const std::string& here) {
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("the plan is for another {}: it records {}, here is {}", what, recorded, here),
               {"Plan again with: berth plan MODEL --json, or use --replan to plan anew with the recorded options."});
}

}  // namespace

DeviceMap device_map_of(const Plan& plan, const arch::ModuleTree* tree) {
  DeviceMap map;
  for (const PlacedUnit& u : plan.units)
    for (const std::string& path : u.paths) map.entries[path] = DeviceName::from_key(u.device);
  if (tree == nullptr) return map;
  std::vector<TensorPlace> places = expanded(*tree, map);
  std::optional<DeviceName> last;
  for (const TensorPlace& p : places)
    if (p.device) {
      last = p.device;
      break;
    }
  for (TensorPlace& p : places) {
    if (!p.device) p.device = last;
    last = p.device;
  }
  return collapsed(*tree, places);
}

namespace {

void write(const PlanDocument& document, bool whole, JsonWriter& out) {
  // The field lists serve reading too and take references; writing changes nothing.
  PlanDocument copy = document;
  Writer writer(out, whole);
  out.begin_object();
  fields(writer, copy);
  out.end_object();
}

}  // namespace

void write_plan(const PlanDocument& document, JsonWriter& out) { write(document, true, out); }
void write_plan_summary(const PlanDocument& document, JsonWriter& out) { write(document, false, out); }
void write_plan_members(const PlanDocument& document, JsonWriter& out) {
  PlanDocument copy = document;
  Writer writer(out, false);
  fields(writer, copy);
}

std::string plan_json(const PlanDocument& document, int indent) {
  JsonWriter out(indent);
  write_plan(document, out);
  return out.take();
}

Result<PlanDocument> read_plan(JsonView object) {
  if (!object.is_object()) return Error(ErrorCode::kInvalidArgument, "reading a plan: a JSON object was expected");
  PlanDocument document;
  std::optional<Error> error;
  Reader reader(object, "", error);
  fields(reader, document);
  if (error) return *std::move(error);
  // One entry per device, and units only on those.
  for (size_t d = 0; d < document.plan.devices.size(); ++d)
    for (size_t e = 0; e < d; ++e)
      if (document.plan.devices[d].id == document.plan.devices[e].id)
        return Error(ErrorCode::kInvalidArgument, fmt::format("reading a plan: devices[{}] and devices[{}] are both {}",
                                                              e, d, quoted(document.plan.devices[d].id)));
  for (size_t u = 0; u < document.plan.units.size(); ++u)
    for (const std::string& id : {document.plan.units[u].device, document.plan.units[u].computed_on})
      if (document.plan.device(id) == nullptr)
        return Error(ErrorCode::kInvalidArgument,
                     fmt::format("reading a plan: units[{}] ({}) is on device {}, which devices does not list", u,
                                 quoted(document.plan.units[u].path), quoted(id)));
  if (!document.sizes.units.empty()) {
    sizing::UnitTable& sizes = document.sizes;
    if (sizes.units.size() != document.plan.units.size() || sizes.chain_size < 1 ||
        static_cast<size_t>(sizes.chain_size) > sizes.units.size())
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("reading a plan: sizes are of {} units ({} in the chain), the plan has {}",
                               sizes.units.size(), sizes.chain_size, document.plan.units.size()));
    sizes.memory_footprint_bytes = document.plan.memory_footprint_bytes;
    for (size_t u = 0; u < sizes.units.size(); ++u) {
      const PlacedUnit& placed = document.plan.units[u];
      sizes.units[u].kind = placed.kind;
      sizes.units[u].layer = placed.layer;
      sizes.units[u].path = placed.path;
      sizes.units[u].paths = placed.paths;
    }
  }
  return document;
}

Result<RecordedRequest> recorded_request(const PlanDocument& document) {
  if (!document.compat.empty())
    return Error(
        ErrorCode::kInvalidArgument,
        fmt::format("the plan is the map of {}, by its own count of bytes: Berth has no reasons for it, nor costs",
                    document.compat),
        {"Without --compat the plan is Berth's; its warnings beside --compat say what goes wrong with the map."});
  if (document.sizes.units.empty())
    return Error(ErrorCode::kInvalidArgument, "the plan does not record the sizes of its units",
                 {"Make it again with: berth plan MODEL --json"});
  RecordedRequest r;
  r.units = document.sizes;
  r.machine = document.machine;
  r.shape = document.plan.shape;
  r.strategy = document.plan.strategy;
  for (size_t d = 0; d < r.machine.devices.size(); ++d) {
    machine::DeviceBudget b;
    b.map_name = r.machine.map_name(d);
    b.machine_id = r.machine.devices[d].id;
    const DeviceUse* use = document.plan.device(b.map_name);
    b.left_out = use == nullptr;
    if (use != nullptr) {
      b.budget_bytes = use->budget_bytes;
      b.overhead_bytes = use->overhead_bytes;
      b.margin_bytes = use->margin_bytes;
    }
    r.budgets.push_back(std::move(b));
  }
  return r;
}

Result<PlanDocument> parse_plan(std::string_view text) {
  auto document = JsonDocument::parse(text, {.max_bytes = size_t{256} << 20});
  if (!document) {
    Error e = std::move(document).error().with_context("reading a plan");
    e.code = ErrorCode::kInvalidArgument;
    return e;
  }
  return read_plan(document->root());
}

Result<Plan> adopt_plan(const PlanDocument& document, const AssignRequest& request, std::string_view checkpoint) {
  const Plan& recorded = document.plan;
  if (document.checkpoint != checkpoint) return differs("checkpoint", quoted(document.checkpoint), quoted(checkpoint));
  const sizing::RunShape& shape = request.shape;
  if (recorded.shape.ctx_size != shape.ctx_size || recorded.shape.batch != shape.batch ||
      recorded.shape.kv_dtype != shape.kv_dtype || recorded.shape.prefill_chunk != shape.prefill_chunk)
    return differs(
        "run",
        fmt::format("context {}, batch {}, chunk {}, KV cache {}", recorded.shape.ctx_size, recorded.shape.batch,
                    recorded.shape.prefill_chunk, dtype_info(recorded.shape.kv_dtype).torch),
        fmt::format("context {}, batch {}, chunk {}, KV cache {}", shape.ctx_size, shape.batch, shape.prefill_chunk,
                    dtype_info(shape.kv_dtype).torch));
  const auto& units = request.units->units;
  if (units.size() != recorded.units.size())
    return differs("model", fmt::format("{} units", recorded.units.size()), fmt::format("{}", units.size()));
  const auto device_index = [&](const std::string& id) -> Result<size_t> {
    const auto d = request.machine->find(id);
    if (!d)
      return differs("machine", "device " + quoted(id),
                     "none of that name (" + join(request.machine->names(), ", ") + ")");
    const DeviceUse* use = recorded.device(id);
    if (use != nullptr && use->machine_id != request.machine->devices[*d].id)
      return differs("machine", fmt::format("{} as device {}", quoted(use->machine_id), id),
                     quoted(request.machine->devices[*d].id));
    if (use != nullptr && request.machine->devices[*d].is_accelerator() &&
        use->budget_bytes != request.budgets[*d].budget_bytes)
      return differs("machine", fmt::format("device {} with {} bytes", id, use->budget_bytes),
                     fmt::format("{} bytes", request.budgets[*d].budget_bytes));
    return *d;
  };
  std::vector<Assignment> assignments;
  for (size_t u = 0; u < units.size(); ++u) {
    const PlacedUnit& placed = recorded.units[u];
    if (placed.path != units[u].path) return differs("model", "unit " + quoted(placed.path), quoted(units[u].path));
    TRY(const size_t memory, device_index(placed.device));
    TRY(const size_t compute, device_index(placed.computed_on));
    const bool disk = request.machine->devices[compute].kind == machine::DeviceKind::kDisk;
    const bool chain = static_cast<int32_t>(u) < request.units->chain_size;
    if (chain && disk)
      return Error(ErrorCode::kInvalidArgument, fmt::format("the plan computes {} on the disk", quoted(placed.path)));
    const bool memory_accelerator = request.machine->devices[memory].is_accelerator();
    if (chain && memory != compute && memory_accelerator)
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("the plan stores {} on accelerator {} and computes it on {}", quoted(placed.path),
                               placed.device, placed.computed_on));
    assignments.push_back({memory, compute, placed.access, placed.reason});
  }
  AssignRequest again = request;
  again.strategy = recorded.strategy;
  TRY(Plan plan, assign(again, assignments));
  plan.certificate = recorded.certificate;
  plan.warnings = recorded.warnings;
  return plan;
}

}  // namespace berth::plan
