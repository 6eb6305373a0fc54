# tests/c/test_<file>.c, or test_<file>_<aspect>.c: one libcheck program each, run by ctest. Other .c
# files there are shared.
#
# With DT_TEST_NARROW a test links only the layer of the file it is named after, and those below:
# it can be built while a higher layer does not compile.

option(DT_TEST_NARROW "Link each C test to its own layer and those below only" OFF)

find_package(PkgConfig REQUIRED)
pkg_check_modules(CHECK REQUIRED IMPORTED_TARGET check)

file(GLOB DT_TEST_FILES CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/c/*.c")
set(dt_test_mains ${DT_TEST_FILES})
list(FILTER dt_test_mains INCLUDE REGEX "/test_[^/]*\\.c$")
list(FILTER DT_TEST_FILES EXCLUDE REGEX "/test_[^/]*\\.c$")
if(DT_TEST_FILES)
  add_library(dt_test_support OBJECT ${DT_TEST_FILES})
  target_link_libraries(dt_test_support PRIVATE dt_flags dt_uring DNNL::dnnl PkgConfig::CHECK)
  set(dt_test_support_objects "$<TARGET_OBJECTS:dt_test_support>")
endif()

# Where FILE.c lies decides what its narrow test links.
function(dt_test_libraries file result)
  set(${result} dt_core PARENT_SCOPE)
  if(DT_TEST_NARROW)
    string(REGEX REPLACE "_[^_]*$" "" stem "${file}")
    foreach(name "${stem}" "${file}")
      foreach(layer runtime scheduler futures collectives)
        if(EXISTS "${PROJECT_SOURCE_DIR}/${layer}/${name}.c")
          set(${result} dt_${layer} PARENT_SCOPE)
        endif()
      endforeach()
      foreach(folder kernels kernels/cpu kernels/cpu/simd)
        if(EXISTS "${PROJECT_SOURCE_DIR}/${folder}/${name}.c")
          set(${result} dt_kernels PARENT_SCOPE)
        endif()
      endforeach()
    endforeach()
  endif()
endfunction()

set(dt_test_env
  "ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1"
  "UBSAN_OPTIONS=print_stacktrace=1"
  "LSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/cmake/lsan.supp:print_suppressions=0"
  "TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/cmake/tsan.supp:second_deadlock_stack=1")
if(DT_SANITIZE)
  # libcheck ends a test after 4 s; a sanitizer alone can cost a factor of ten, and ctest runs several at a time.
  list(APPEND dt_test_env "CK_TIMEOUT_MULTIPLIER=40")
  set(dt_test_timeout_s 900)
else()
  list(APPEND dt_test_env "CK_TIMEOUT_MULTIPLIER=5")
  set(dt_test_timeout_s 300)
endif()

# Tests that never start a thread: kernels in parts one after the other, rules, metadata, lists.
# ThreadSanitizer could find nothing there, and they are most of its time; AddressSanitizer has them
# all. before_test.h fails one that starts a thread all the same.
string(JOIN "|" dt_threadless
  assemble chain copy cpuid create dtype elementwise fused gemm index_mask join keys lens mask_walk
  math mesh nonzero normalize op plan random "reduce(_arg|_plan)?" "rules(_.*)?" scan shape
  "shard(_.*)?" trace_json unique)

# So with the test cases that carry this tag, in tests that have others.
if(DT_SANITIZE MATCHES "thread")
  list(APPEND dt_test_env "CK_EXCLUDE_TAGS=threadless")
endif()

foreach(source IN LISTS dt_test_mains)
  get_filename_component(name "${source}" NAME_WE)
  string(REGEX REPLACE "^test_" "" file "${name}")
  if(file MATCHES "^(${dt_threadless})$")
    if(DT_SANITIZE MATCHES "thread")
      continue()
    endif()
    set_source_files_properties("${source}" PROPERTIES COMPILE_DEFINITIONS DT_TEST_THREADLESS=1)
  endif()
  dt_test_libraries("${file}" libraries)
  add_executable(${name} "${source}" ${dt_test_support_objects})
  target_compile_options(${name} PRIVATE -include "${PROJECT_SOURCE_DIR}/tests/c/before_test.h")
  target_link_libraries(${name} PRIVATE ${libraries} PkgConfig::CHECK)
  add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
  set_tests_properties(${name} PROPERTIES ENVIRONMENT "${dt_test_env}" TIMEOUT ${dt_test_timeout_s})
endforeach()

# test_math.c holds copies of the kernels' loops and must compile them as kernels are.
if(TARGET test_math)
  target_compile_options(test_math PRIVATE ${dt_simd_opt} -fno-math-errno -fno-trapping-math)
endif()

include(cmake/DtSim.cmake)
