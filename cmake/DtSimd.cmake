# kernels/cpu/simd/*.c is compiled once for each instruction set; the choice is made at run time.
# Each object sees DT_ISA_SUFFIX (base, avx2, avx512), with which it names its symbols, and
# DT_ISA_LEVEL (0, 1, 2). Off x86-64 there is only "base", and DT_ISA_BASE_ONLY=1 says so.

file(GLOB DT_SIMD_SOURCES CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/kernels/cpu/simd/*.c")
set(DT_SIMD_OBJECTS "")

if(DT_SANITIZE)
  set(dt_simd_opt -O1) # -O3 under a sanitizer takes minutes to compile and finds nothing more
else()
  set(dt_simd_opt -O3)
endif()

# Steps of register chains pass 64-byte vectors in registers. AddressSanitizer's fake stacks, which
# look for uses after return, give such vectors frames that are aligned to less, and GCC's aligned
# moves to them fault. The chains' driver, chain.c, is checked.
file(GLOB dt_chain_steps CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/kernels/cpu/simd/chain_*.c")
if(DT_SANITIZE MATCHES "address")
  set_source_files_properties(${dt_chain_steps} PROPERTIES COMPILE_OPTIONS "-fno-sanitize=address")
endif()

function(dt_add_isa suffix level)
  if(DT_SIMD_SOURCES)
    add_library(dt_simd_${suffix} OBJECT ${DT_SIMD_SOURCES})
    target_link_libraries(dt_simd_${suffix} PRIVATE dt_flags)
    target_compile_definitions(dt_simd_${suffix} PRIVATE
      DT_ISA_SUFFIX=${suffix} DT_ISA_LEVEL=${level})
    # These two change no value: they only give up errno and floating-point exception flags.
    target_compile_options(dt_simd_${suffix} PRIVATE
      ${dt_simd_opt} -fno-math-errno -fno-trapping-math ${ARGN})
    set(DT_SIMD_OBJECTS ${DT_SIMD_OBJECTS} dt_simd_${suffix} PARENT_SCOPE)
  endif()
endfunction()

if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  dt_add_isa(base 0 -march=x86-64-v2)
  dt_add_isa(avx2 1 -march=x86-64-v3)
  dt_add_isa(avx512 2 -march=x86-64-v4 -mprefer-vector-width=512)
else()
  target_compile_definitions(dt_flags INTERFACE DT_ISA_BASE_ONLY=1)
  dt_add_isa(base 0)
endif()
