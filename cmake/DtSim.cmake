# The simulator (tests/sim): scheduler/ compiled once more, with the system's calls and all atomic
# operations going to the simulator's own. What stands for the kernel's I/O, threads and files is not
# compiled.

file(GLOB dt_sim_scheduler CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/scheduler/*.c")
list(FILTER dt_sim_scheduler EXCLUDE REGEX "/(ring|epoll|threads|file)\\.c$")
add_library(dt_sim_scheduler OBJECT ${dt_sim_scheduler})
target_link_libraries(dt_sim_scheduler PRIVATE dt_flags)
target_compile_definitions(dt_sim_scheduler PRIVATE DT_SIM=1)
target_compile_options(dt_sim_scheduler PRIVATE
  -include "${PROJECT_SOURCE_DIR}/tests/sim/interpose.h")

file(GLOB dt_sim_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/sim/*.c")
add_executable(sim ${dt_sim_sources} $<TARGET_OBJECTS:dt_sim_scheduler>)
target_compile_definitions(sim PRIVATE DT_SIM=1)
if(DT_SANITIZE MATCHES "thread")
  # It knows of the fibers and watches the scheduler, not the simulator itself.
  target_compile_definitions(sim PRIVATE SIM_TSAN=1)
  set(dt_sim_unseen ${dt_sim_sources})
  list(FILTER dt_sim_unseen EXCLUDE REGEX "/refs\\.c$")
  set_source_files_properties(${dt_sim_unseen} PROPERTIES COMPILE_OPTIONS -fno-sanitize=thread)
endif()
target_link_libraries(sim PRIVATE dt_runtime)

set(dt_sim_env ${dt_test_env})
if(DT_SANITIZE MATCHES "thread")
  set(dt_sim_seeds 1500)
  list(FILTER dt_sim_env EXCLUDE REGEX "^TSAN_OPTIONS")
  list(APPEND dt_sim_env "TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/cmake/tsan_sim.supp")
elseif(DT_SANITIZE OR DT_DEBUG OR CMAKE_BUILD_TYPE STREQUAL "Debug")
  set(dt_sim_seeds 3000)
else()
  set(dt_sim_seeds 40000)
endif()
add_test(NAME sim COMMAND sim --seeds ${dt_sim_seeds})
set(dt_sim_tests sim)
if(NOT DT_SANITIZE MATCHES "thread") # there the checks that look into the scheduler are left out
  add_test(NAME sim_plants COMMAND sim --plants)
  list(APPEND dt_sim_tests sim_plants)
endif()
set_tests_properties(${dt_sim_tests} PROPERTIES ENVIRONMENT "${dt_sim_env}" TIMEOUT 300)
