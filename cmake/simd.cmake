# add_simd_sources(): sources compiled for one instruction set into an object library that a layer links in.
#
#   add_simd_sources(NAME kernel_avx2 ISA avx2 SOURCES cpu/matmul_avx2.cc ... DEPS device quant tensor base)
#
# Only these files may use the instruction set's intrinsics; a run-time check chooses which of them run, so such a
# file must not define inline functions or templates that another file could pick up from here (one-definition rule).
set(BERTH_ISA_FLAGS_avx2 -mavx2 -mfma -mf16c -mbmi2)
set(BERTH_ISA_FLAGS_avx512 -mavx2 -mfma -mf16c -mbmi2 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni -mavx512vbmi -mprefer-vector-width=512)

string(TOUPPER "${CMAKE_BUILD_TYPE}" BERTH_BUILD_TYPE_UPPER)

function(add_simd_sources)
  cmake_parse_arguments(S "" "NAME;ISA" "SOURCES;DEPS" ${ARGN})
  add_library(${S_NAME} OBJECT ${S_SOURCES})
  target_link_libraries(${S_NAME} PRIVATE berth_flags)
  foreach(dep ${S_DEPS})
    target_link_libraries(${S_NAME} PRIVATE berth_${dep})
  endforeach()
  target_include_directories(${S_NAME} PRIVATE ${CMAKE_SOURCE_DIR})
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    target_compile_options(${S_NAME} PRIVATE ${BERTH_ISA_FLAGS_${S_ISA}})
    if(CMAKE_CXX_FLAGS_${BERTH_BUILD_TYPE_UPPER} MATCHES "undefined")
      # UBSan's checks in every inlined intrinsic make these files take minutes to compile; AddressSanitizer stays, and so
      # do the checks that say something about code like this.
      target_compile_options(${S_NAME} PRIVATE -fno-sanitize=undefined,fuzzer-no-link
        -fsanitize=pointer-overflow,shift,signed-integer-overflow,bounds)
    endif()
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")  # false alarms inside g++ 12's own avx512 headers
      target_compile_options(${S_NAME} PRIVATE -Wno-maybe-uninitialized -Wno-uninitialized)
    endif()
  endif()
endfunction()
