# Flags every target gets. Bits never depend on the optimizer: no contraction of a*b+c, no fast-math (docs/numerics.md).
add_library(berth_flags INTERFACE)
target_compile_options(berth_flags INTERFACE
  -ffp-contract=off -fno-math-errno -fvisibility=default
  -Wall -Wextra -Wpedantic -Wshadow -Wno-psabi -Wno-dangling-else)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # g++ 12 at -O2 loses roundings: two neighbouring double -> float -> double conversions become none (SLP vectorizer).
  target_compile_options(berth_flags INTERFACE -fno-tree-slp-vectorize)
  target_compile_options(berth_flags INTERFACE -Wno-missing-field-initializers
    -Wno-restrict -Wno-maybe-uninitialized)  # false alarms in g++ 12: its strings; std::optional of a vector
else()
  target_compile_options(berth_flags INTERFACE -Wno-missing-field-initializers -Wno-gnu-statement-expression)
endif()
# Tests with a time limit (hostile input that must not take forever) allow for a sanitizer's slowness.
string(TOUPPER "${CMAKE_BUILD_TYPE}" build_type)
if("${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_${build_type}}" MATCHES "-fsanitize=")
  target_compile_definitions(berth_flags INTERFACE BERTH_SANITIZED)
endif()
if(BERTH_WERROR)
  target_compile_options(berth_flags INTERFACE -Werror)
endif()
if(CMAKE_SIZEOF_VOID_P EQUAL 8)
  find_package(Threads REQUIRED)
  target_link_libraries(berth_flags INTERFACE Threads::Threads)
endif()

find_program(BERTH_CCACHE ccache)
if(BERTH_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${BERTH_CCACHE})
endif()
