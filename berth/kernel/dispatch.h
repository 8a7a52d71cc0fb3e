// kernel/dispatch.h — one row of function pointers per instruction set: what every public operation calls.
//
// Private to the layer. The public functions (linear.cc, attention.cc, ...) check their arguments once and call
// operations(context.isa).NAME; a row may use another row's function where its own would gain nothing.
//
// To add an operation: its header, ref/NAME.cc, a field here, the rows in dispatch.cc, parity rows in parity_test.cc.
#pragma once

#include <string_view>

#include "berth/kernel/attention.h"
#include "berth/kernel/context.h"
#include "berth/kernel/elementwise.h"
#include "berth/kernel/linear.h"
#include "berth/kernel/norm.h"
#include "berth/kernel/rope.h"

namespace berth::kernel {

struct Operations {
  std::string_view name;
  decltype(&kernel::linear) linear;
  decltype(&kernel::rms_norm) rms_norm;
  decltype(&kernel::layer_norm) layer_norm;
  decltype(&kernel::rope) rope;
  decltype(&kernel::kv_write) kv_write;
  decltype(&kernel::attention) attention;
  decltype(&kernel::apply) apply;
  decltype(&kernel::activate) activate;
  decltype(&kernel::add_residual) add_residual;
  decltype(&kernel::scale) scale;
  decltype(&kernel::divide) divide;
  decltype(&kernel::softcap) softcap;
  decltype(&kernel::gather_rows) gather_rows;
  decltype(&kernel::softmax) softmax;
  decltype(&kernel::argmax) argmax;
  decltype(&kernel::all_finite) all_finite;
};

// The row of an instruction set that this CPU has (the device was refused otherwise; CHECKed).
const Operations& operations(Isa isa);

// The reference compiled without and with the fma instruction: the same bits, the second one quick. operations(kRef) is
// the second where the CPU has fma. For the tests.
const Operations& reference_operations(bool fma_instruction);

}  // namespace berth::kernel
