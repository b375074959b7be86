# Remove include directories that do not exist from every imported target seen so far.
#
# CMake refuses to link an imported target whose exported include directory is missing. The ROS
# wheels on PyPI export directories of the container they were built in. On a ROS installation every
# directory exists and nothing changes.
function(drop_missing_include_directories)
  get_property(targets DIRECTORY PROPERTY IMPORTED_TARGETS)
  foreach(target IN LISTS targets)
    get_target_property(directories ${target} INTERFACE_INCLUDE_DIRECTORIES)
    if(NOT directories)
      continue()
    endif()
    set(present "")
    foreach(directory IN LISTS directories)
      if(directory MATCHES "^\\$<" OR EXISTS "${directory}")
        list(APPEND present "${directory}")
      endif()
    endforeach()
    set_target_properties(${target} PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${present}")
  endforeach()
endfunction()
