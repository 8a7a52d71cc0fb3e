// arch/family_list.h — every file of families/, found by CMake: one function NAME_families() each.
#pragma once

#include <span>

#include "berth/arch/families/family.h"

namespace berth::arch {

using FamilyGroup = std::span<const Family> (*)();

std::span<const FamilyGroup> family_groups();  // defined in the generated family_list.cc

}  // namespace berth::arch
