// plan/explain/text.h — a plan as a picture for a terminal: a bar per device, a strip of layers, what stands beside
// them.
//
// Pure functions of values; as wide as they are told, in color where they are told. Start reading at: plan_picture.
#pragma once

#include <string>
#include <string_view>

#include "berth/plan/plan.h"

namespace berth::plan {

struct PictureStyle {
  int width = 80;      // columns, at least 40 are used
  bool color = false;  // the caller looks at NO_COLOR, --color and the terminal
};

// Ends with a newline. `title` is the first line; empty: none.
std::string plan_picture(const Plan& plan, const PictureStyle& style, std::string_view title = "");

// One device: "0 emu:0  ████▓▒·····  9.2 GiB of 16.0 GiB", and its parts below.
std::string device_bar(const DeviceUse& device, int width, const PictureStyle& style);

// The letter that stands for a device in the strip: its number (10 and more: A, B, E, F, ..), c for the cpu, d for the
// disk.
char device_letter(std::string_view id);

// Whole picture's rule line, "proven best", "at most 0.3 % slower than the best": what the certificate says, for
// people.
std::string certificate_text(const Certificate& certificate);

// Columns that a text takes: its code points, escape sequences left out.
int columns(std::string_view text);

}  // namespace berth::plan
