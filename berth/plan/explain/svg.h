// plan/explain/svg.h — a plan as one SVG picture, and as one HTML page: bars per device and the layers as tiles.
// Hovering a tile shows the module, its bytes and the reason. No network is needed to view either.
#pragma once

#include <string>
#include <string_view>

#include "berth/plan/plan.h"

namespace berth::plan {

// A complete SVG document, `width` pixels wide.
std::string plan_svg(const Plan& plan, std::string_view title, int width = 960);

// A complete HTML page: the picture, tables of devices and modules that can be filtered, warnings.
std::string plan_html(const Plan& plan, std::string_view title);

// Text with &, <, >, " and ' escaped and control characters made visible.
std::string xml_escaped(std::string_view text);

}  // namespace berth::plan
