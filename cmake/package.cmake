# Debian packages: cpack --config build/release/CPackConfig.cmake -B build/packages
#   tapestry       the program, its configs, manual pages and completions (tapestry-cuda of a CUDA build)
#   tapestry-mpi   training on several machines
#   tapestry-dev   the libraries
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL runtime development)
if(TARGET tapestry_mpi)
  list(APPEND CPACK_COMPONENTS_ALL mpi)
endif()
set(name tapestry)
if(TAPESTRY_CUDA AND NOT TAPESTRY_CUDA STREQUAL "EMULATED")
  set(name tapestry-cuda)
  foreach(relation PROVIDES CONFLICTS REPLACES)
    set(CPACK_DEBIAN_RUNTIME_PACKAGE_${relation} tapestry)
  endforeach()
endif()
set(CPACK_PACKAGE_NAME ${name})
set(CPACK_PACKAGE_CONTACT "The developers of Tapestry")
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
# Names and versions of the libraries that the files are linked with.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME ${name})
set(CPACK_DEBIAN_RUNTIME_PACKAGE_DEPENDS "libopenblas0-pthread | libopenblas0")  # opened when it is needed
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SUGGESTS "trans-de-en, ${name}-mpi")
set(CPACK_COMPONENT_RUNTIME_DESCRIPTION "Trains Transformers from a YAML file
 Translation, causal and masked language models, fine-tuning and answering, in one program.")
set(CPACK_DEBIAN_MPI_PACKAGE_NAME ${name}-mpi)
set(CPACK_DEBIAN_MPI_PACKAGE_DEPENDS "${name} (= ${PROJECT_VERSION})")
set(CPACK_COMPONENT_MPI_DESCRIPTION "Tapestry on several machines
 The module by which ranks that mpirun or srun started find each other.")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME ${name}-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
string(JOIN ", " CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS  # what cmake/tapestryConfig.cmake.in looks for
  "libopenblas0-pthread | libopenblas0" pkg-config libbz2-dev libfmt-dev libhwy-dev libicu-dev
  libjpeg62-turbo-dev liblzma-dev libonig-dev libpng-dev librandom123-dev libsentencepiece-dev libspdlog-dev
  libxxhash-dev libyaml-cpp-dev libzstd-dev nlohmann-json3-dev zlib1g-dev)
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION "Tapestry as C++ libraries
 Tensors, autograd, layers, optimizers and data, with their CMake package.")
include(CPack)
