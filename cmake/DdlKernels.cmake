# src/backend/cpu/kernels/ once per instruction set. Every file there names its functions with DDL_KERNEL(name), which
# appends the set's name; cpu/isa.c picks one set at start. Sets DDL_KERNEL_OBJECTS and DDL_KERNEL_TARGETS.
include(CheckCSourceCompiles)
file(GLOB DDL_KERNEL_SOURCES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/backend/cpu/kernels/*.c)
# Those with dot products and tiles (DDL_DOT_KERNELS, DDL_PAIRS_KERNELS in kernels.h), and the table of a set.
set(DDL_DOT_SOURCES ${DDL_KERNEL_SOURCES})
list(FILTER DDL_DOT_SOURCES INCLUDE REGEX "/(int8|pairs|skinny|table)[.]c$")
set(DDL_KERNEL_OBJECTS "")

# With sanitizers GCC takes twice as long for -O2 as for -O1, and several times as long for -O3.
if(DDL_SANITIZE)
  set(level -O1)
else()
  set(level -O3)
endif()
set(DDL_KERNEL_LEVEL ${level} CACHE STRING "Optimization of the kernels; less for a build that must only be right")
# A build with sanitizers is run where it is made: it has no kernels for AVX-512 where the processor has none.
set(avx512 ON)
if(DDL_SANITIZE AND EXISTS /proc/cpuinfo)
  file(STRINGS /proc/cpuinfo flags REGEX "avx512f" LIMIT_COUNT 1)
  if(NOT flags)
    set(avx512 OFF)
  endif()
endif()
option(DDL_AVX512 "Compile the kernels for AVX-512 too" ${avx512})
mark_as_advanced(DDL_KERNEL_LEVEL DDL_AVX512)

# ddl_kernels(ISA OTHER [compiler option...]): OTHER is the set of the kernels without dot products: ISA itself, or one that
# is compiled too and has all instructions but those for dot products.
function(ddl_kernels isa other)
  if(isa STREQUAL other)
    add_library(ddl_kernels_${isa} OBJECT ${DDL_KERNEL_SOURCES})
  else()
    add_library(ddl_kernels_${isa} OBJECT ${DDL_DOT_SOURCES})
  endif()
  ddl_target(ddl_kernels_${isa})
  target_compile_definitions(ddl_kernels_${isa} PRIVATE DDL_ISA=${isa} DDL_OTHER_ISA=${other})
  # Sums may be reordered for vectors and multiply-adds fused; infinities, NaNs and signed zeros keep their meaning.
  target_compile_options(ddl_kernels_${isa} PRIVATE ${DDL_KERNEL_LEVEL} -fopenmp-simd -fno-trapping-math -ffp-contract=fast ${ARGN})
  if(DDL_SANITIZE MATCHES "address" AND CMAKE_C_COMPILER_ID STREQUAL "GNU")
    # GCC's stand-in stack frames for this check are aligned to 32 bytes, where it stores vectors that need 64
    # (seen with 14.2: a crash in any AVX-512 function that puts a vector into memory).
    target_compile_options(ddl_kernels_${isa} PRIVATE --param=asan-use-after-return=0)
  endif()
  if(DDL_SANITIZE AND CMAKE_C_COMPILER_ID MATCHES "Clang")
    target_compile_options(ddl_kernels_${isa} PRIVATE -Wno-pass-failed) # checks prevent vectorization
  endif()
  target_compile_definitions(ddl_objects PRIVATE DDL_HAS_ISA_${isa}=1)
  set(DDL_KERNEL_OBJECTS ${DDL_KERNEL_OBJECTS} $<TARGET_OBJECTS:ddl_kernels_${isa}> PARENT_SCOPE)
  set(DDL_KERNEL_TARGETS ${DDL_KERNEL_TARGETS} ddl_kernels_${isa} PARENT_SCOPE)
endfunction()

if(DDL_KERNEL_SOURCES)
  ddl_kernels(baseline baseline)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64" AND NOT DDL_FUZZ) # files are fuzzed on the reference backend
    ddl_kernels(avx2 avx2 -march=x86-64-v3 -mtune=generic)
  endif()
  if(TARGET ddl_kernels_avx2 AND DDL_AVX512)
    ddl_kernels(avx512 avx512 -march=x86-64-v4 -mtune=generic -mprefer-vector-width=512)
    # Dot products of bytes: eight-bit weights at a third of the instructions.
    ddl_kernels(avx512vnni avx512 -march=x86-64-v4 -mavx512vnni -mtune=generic -mprefer-vector-width=512)
    # Dot products of pairs of bfloat16: steps of many sequences at twice the rate of float32.
    ddl_kernels(avx512bf16 avx512 -march=x86-64-v4 -mavx512vnni -mavx512bf16 -mtune=generic -mprefer-vector-width=512)
    # Products of tiles (pairs.c), where the compiler and the assembler have them.
    set(CMAKE_REQUIRED_FLAGS "-mamx-tile -mamx-bf16")
    check_c_source_compiles("#include <immintrin.h>
      int main(void) { _tile_zero(0); _tile_dpbf16ps(0, 1, 2); _tile_release(); return 0; }" DDL_COMPILES_AMX)
    unset(CMAKE_REQUIRED_FLAGS)
    if(DDL_COMPILES_AMX)
      ddl_kernels(amx avx512 -march=x86-64-v4 -mavx512vnni -mavx512bf16 -mamx-tile -mamx-bf16 -DHAVE_TILES -mtune=generic
                  -mprefer-vector-width=512)
    endif()
  endif()
endif()
