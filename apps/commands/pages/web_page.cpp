#include "apps/commands/pages/web_page.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/error.h"

namespace tapestry {
namespace {

// A file that the build forgot is found by any test that writes a page.
std::string_view file(std::string_view name) {
  const std::string_view bytes = web_file(name);
  check(!bytes.empty(), "page", "the program has no file '", name, "'.");
  return bytes;
}

// JSON that a script of the page reads. Inside a script element it must not contain "</".
std::string json_element(const char* id, const std::string& json) {
  std::string html = concat("<script type=\"application/json\" id=\"", id, "\">");
  html.reserve(html.size() + json.size());
  for (const char c : json) c == '<' ? html += "\\u003c" : html += c;
  return html + "</script>\n";
}

// Without the comment that names a file for debuggers: the page loads nothing else.
std::string without_source_map(std::string_view file) {
  std::string text(file);
  for (const auto& [begin, end] :
       {std::pair("//# sourceMappingURL=", "\n"), std::pair("/*# sourceMappingURL=", "*/")}) {
    const size_t at = text.find(begin);
    if (at == std::string::npos) continue;
    const size_t behind = text.find(end, at);
    text.erase(at, behind == std::string::npos ? behind : behind + std::string(end).size() - at);
  }
  return text;
}

std::string head(const std::string& title, std::initializer_list<const char*> styles,
                 bool calls = false) {
  std::string html =
      concat("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n",
             "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n",
             "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
             "'unsafe-inline'; script-src 'unsafe-inline'; img-src data:",
             calls ? "; connect-src 'self'" : "", "\">\n",
             calls ? "<link rel=\"icon\" href=\"data:,\">\n" : "", "<title>", escaped(title),
             "</title>\n<style>\n", file("page.css"));
  for (const char* name : styles) html += without_source_map(file(name));
  return html + "</style></head>\n<body>\n";
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string html;
  for (const char c : text) {
    switch (c) {
      case '<':
        html += "&lt;";
        break;
      case '>':
        html += "&gt;";
        break;
      case '&':
        html += "&amp;";
        break;
      case '"':
        html += "&quot;";
        break;
      default:
        html += c;
    }
  }
  return html;
}

std::string html_of(const WebPage& page) {
  std::string html = head(page.title, page.styles, page.calls);
  html += json_element("data", page.data);
  if (!page.licence.empty()) html += json_element("licence", nlohmann::json(page.licence).dump());
  for (const char* name : page.scripts) {
    html += concat("<script>\n", without_source_map(file(name)), "</script>\n");
  }
  return html + "</body></html>\n";
}

std::string html_around(const std::string& title, const std::string& body) {
  // Without a script nothing asks the browser for its preferred colours.
  std::string html = head(title, {});
  const std::string light = ":root {", dark = ":root.dark {";
  const size_t at = html.find(dark), end = html.find('}', at);
  check(at != std::string::npos, "page", "page.css has no colours for dark screens.");
  const std::string colours = html.substr(at + dark.size(), end - at - dark.size());
  html.insert(html.find("</style>"),
              concat("@media screen and (prefers-color-scheme: dark) { ", light, colours, "} }\n"));
  return concat(html, "<main>\n", body, "</main></body></html>\n");
}

}  // namespace tapestry
