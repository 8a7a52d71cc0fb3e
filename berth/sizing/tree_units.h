// sizing/tree_units.h — units of a bare module tree: what a planner can place of a model without an architecture here.
//
// Modules in definition order stand for the order of execution. A unit is a block that must stay whole, else a leaf, or
// a module too small to be worth dividing (1/512 of the model); a module's own tensors beside children are a unit too.
// An Embedding is a table, of which a row is read; where its weight is tied to a unit's, it is stored with that. Other
// ties make one unit of their modules. Nothing is known of KV caches, of which experts a token chooses, and of
// activations beyond the widths of the matrices: those count nothing, everything, and one row in and out.
//
// Start reading at: make_tree_units.
#pragma once

#include "berth/arch/module.h"
#include "berth/sizing/run_shape.h"
#include "berth/sizing/tree_bytes.h"
#include "berth/sizing/units.h"

namespace berth::sizing {

UnitTable make_tree_units(const arch::ModuleTree& tree, const TreeBytes& bytes, const RunShape& shape);

}  // namespace berth::sizing
