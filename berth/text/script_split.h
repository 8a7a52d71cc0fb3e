// text/script_split.h — the UnicodeScripts pre-tokenizer: a cut wherever the script changes. Private to text/.
#pragma once

#include <memory>

#include "berth/text/pre_tokenizer.h"

namespace berth::text {

Result<std::unique_ptr<PreTokenizer>> make_script_split();

}  // namespace berth::text
