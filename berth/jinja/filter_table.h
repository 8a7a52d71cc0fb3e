// jinja/filter_table.h — the two tables of filters, joined by find_filter(). Private to jinja/.
#pragma once

#include <string_view>
#include <vector>

#include "berth/jinja/builtins.h"

namespace berth::jinja {

struct FilterRow {
  std::string_view name;
  FilterFunction function;
};
const std::vector<FilterRow>& value_filters();     // filters.cc
const std::vector<FilterRow>& sequence_filters();  // sequence_filters.cc

}  // namespace berth::jinja
