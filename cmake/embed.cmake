# Writes files as C++, so that the program holds them:
#   cmake -DOUTPUT=<file.cpp> "-DFILES=<name>=<path>;..." -P embed.cmake
# web_file(name) of apps/commands/pages/web_page.h then gives their bytes.
set(arrays "")
set(rows "")
set(number 0)
foreach(file IN LISTS FILES)
  string(FIND "${file}" "=" at)
  string(SUBSTRING "${file}" 0 ${at} name)
  math(EXPR at "${at} + 1")
  string(SUBSTRING "${file}" ${at} -1 path)
  file(READ "${path}" hex HEX)
  string(REGEX REPLACE "(................................................................)" "\\1\n" hex "${hex}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," hex "${hex}")
  string(APPEND arrays "const unsigned char k${number}[] = {\n${hex}};\n")
  string(APPEND rows "    {\"${name}\", {reinterpret_cast<const char*>(k${number}), sizeof k${number}}},\n")
  math(EXPR number "${number} + 1")
endforeach()
file(WRITE "${OUTPUT}" "#include \"apps/commands/pages/web_page.h\"

namespace tapestry {
namespace {

${arrays}
struct WebFile {
  std::string_view name, bytes;
};

const WebFile kFiles[] = {
${rows}};

}  // namespace

std::string_view web_file(std::string_view name) {
  for (const WebFile& file : kFiles) {
    if (file.name == name) return file.bytes;
  }
  return {};
}

}  // namespace tapestry
")
