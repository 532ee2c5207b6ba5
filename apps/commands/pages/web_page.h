// Pages for a browser that load no other file. Their scripts and styles are the files of
// apps/commands/pages/web, which the build puts into the program, and their data is JSON.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

namespace tapestry {

/// The bytes of an embedded file; empty if the name is unknown.
std::string_view web_file(std::string_view name);

struct WebPage {
  std::string title;
  std::initializer_list<const char*> styles;   ///< names of files, behind page.css
  std::initializer_list<const char*> scripts;  ///< behind page.js, which reads `data`
  std::string data = "null";                   ///< JSON
  bool calls = false;                          ///< its server, and nobody else
  std::string_view licence = {};               ///< licences of scripts that are not ours
};

/// The page as HTML. It loads nothing at all, so it works without a network and tells nobody that
/// it was opened.
std::string html_of(const WebPage& page);

/// The same without scripts, around `body`, which is HTML.
std::string html_around(const std::string& title, const std::string& body);

/// A text as part of HTML.
std::string escaped(std::string_view text);

}  // namespace tapestry
