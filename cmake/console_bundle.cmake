# Bundles console/ with esbuild and writes its files as byte arrays of a C++ file.
#
#   cmake -DESBUILD=FILE -DPAGES=console -DWORK=FOLDER -DOUT=bundle.cc -P console_bundle.cmake
#
# Without ESBUILD the C++ file holds none. Each name is served below /console; "" is the page itself.
set(files)
if(ESBUILD)
  foreach(pair src/main.ts:app.js styles.css:styles.css)
    string(REPLACE ":" ";" pair ${pair})
    list(GET pair 0 from)
    list(GET pair 1 to)
    execute_process(
      COMMAND ${ESBUILD} ${from} --bundle --minify --target=es2020 --charset=utf8 --legal-comments=none
              --log-level=warning --outfile=${WORK}/${to}
      WORKING_DIRECTORY ${PAGES} RESULT_VARIABLE failed ERROR_VARIABLE said OUTPUT_VARIABLE said)
    if(failed)
      message(FATAL_ERROR "esbuild ${from}: ${said}")
    endif()
  endforeach()
  set(files "|${PAGES}/index.html|text/html@ charset=utf-8"
            "app.js|${WORK}/app.js|text/javascript@ charset=utf-8"
            "styles.css|${WORK}/styles.css|text/css@ charset=utf-8"
            "icon.svg|${PAGES}/icon.svg|image/svg+xml")
endif()

set(arrays "")
set(rows "")
set(index 0)
foreach(line IN LISTS files)
  string(REGEX MATCH "^([^|]*)[|]([^|]*)[|](.*)$" whole "${line}")
  set(name "${CMAKE_MATCH_1}")
  set(file "${CMAKE_MATCH_2}")
  string(REPLACE "@" ";" type "${CMAKE_MATCH_3}") # which separates a list's items
  file(READ ${file} bytes HEX)
  file(SHA256 ${file} hash)
  string(SUBSTRING ${hash} 0 16 hash)
  string(LENGTH "${bytes}" digits)
  math(EXPR size "${digits} / 2")
  string(REGEX REPLACE "(..)" "'\\\\x\\1'," bytes "${bytes}")
  string(APPEND arrays "constexpr char kFile${index}[] = {${bytes}};\n")
  string(APPEND rows "    {\"${name}\", \"${type}\", {kFile${index}, ${size}}, \"\\\"${hash}\\\"\"},\n")
  math(EXPR index "${index} + 1")
endforeach()
if(rows)
  set(body "${arrays}\nconstexpr BundleFile kFiles[] = {\n${rows}};\n")
  set(result "kFiles")
else()
  set(body "")
  set(result "{}")
endif()
file(WRITE ${OUT} "// Written by cmake/console_bundle.cmake.\n#include \"console/bundle.h\"\n
namespace pelton::console {
namespace {

${body}
}  // namespace

std::span<const BundleFile> bundle() {
  return ${result};
}

}  // namespace pelton::console
")
