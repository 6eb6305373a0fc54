# Finds Python, oneDNN (target DNNL::dnnl) and liburing (target dt_uring).

set(dt_python_parts Interpreter)
if(DT_BUILD_PYTHON)
  list(APPEND dt_python_parts Development.Module)
endif()
# A virtual environment's own interpreter, not the one of a parent directory or of the system.
set(Python_FIND_VIRTUALENV FIRST)
find_package(Python 3.10 REQUIRED COMPONENTS ${dt_python_parts})

# oneDNN comes from PyPI, so its CMake files lie beside the packages of some Python environment:
# the one that runs the build (also a pip build environment), or the development tree's .venv.
# Elsewhere (a distribution's package, CMAKE_PREFIX_PATH) find_package looks by itself.
set(dt_find_dnnl [[
import importlib.metadata as m
try:
    files = m.distribution("onednn-devel-cpu-gomp").files or []
    print(next(f.locate().resolve().parent for f in files if f.name == "dnnl-config.cmake"))
except (m.PackageNotFoundError, StopIteration):
    pass
]])
execute_process(COMMAND "${Python_EXECUTABLE}" -c "${dt_find_dnnl}"
  OUTPUT_VARIABLE dt_dnnl_dir OUTPUT_STRIP_TRAILING_WHITESPACE)
find_package(dnnl 3 CONFIG
  HINTS "${dt_dnnl_dir}" "${PROJECT_SOURCE_DIR}/.venv/lib/cmake/dnnl")
if(NOT dnnl_FOUND)
  message(FATAL_ERROR
    "oneDNN 3 was not found. Install it into the Python that builds dtorch: "
    "pip install onednn-devel-cpu-gomp==2023.2.0 (or run `make build`, which does).")
endif()
message(STATUS "oneDNN ${dnnl_VERSION}: ${dnnl_DIR}")

# liburing is linked statically where its archive can go into a shared object, so that a wheel
# needs nothing from the system.
find_path(DT_URING_INCLUDE liburing.h)
find_library(DT_URING_STATIC liburing.a)
find_library(DT_URING_SHARED uring)
if(NOT DT_URING_INCLUDE OR NOT (DT_URING_STATIC OR DT_URING_SHARED))
  message(FATAL_ERROR "liburing (2.3 or newer) was not found: apt-get install liburing-dev")
endif()
add_library(dt_uring INTERFACE)
target_include_directories(dt_uring SYSTEM INTERFACE "${DT_URING_INCLUDE}")
if(DT_URING_STATIC)
  if(NOT DEFINED DT_URING_STATIC_WORKS)
    set(probe "${CMAKE_BINARY_DIR}/uring_probe.c")
    file(WRITE "${probe}" "#include <liburing.h>\n"
      "int probe(struct io_uring *r) { return io_uring_queue_init(2, r, 0); }\n")
    try_compile(DT_URING_STATIC_WORKS "${CMAKE_BINARY_DIR}/uring_probe" "${probe}"
      CMAKE_FLAGS "-DINCLUDE_DIRECTORIES=${DT_URING_INCLUDE}"
      COMPILE_DEFINITIONS -fPIC
      LINK_OPTIONS -shared
      LINK_LIBRARIES "${DT_URING_STATIC}")
  endif()
endif()
if(DT_URING_STATIC AND DT_URING_STATIC_WORKS)
  target_link_libraries(dt_uring INTERFACE "${DT_URING_STATIC}")
  message(STATUS "liburing: ${DT_URING_STATIC} (static)")
else()
  target_link_libraries(dt_uring INTERFACE "${DT_URING_SHARED}")
  message(STATUS "liburing: ${DT_URING_SHARED} (shared)")
endif()
