// What LibreTranslate's clients ask beside a translation, and the attention of an answer.
#include <future>

#include "tests/apps/commands/serve/serve_client.h"

namespace tapestry {
namespace {

using testing::HasSubstr;

// multipart/form-data of text fields and of a file.
std::string parts_request(const std::string& path,
                          const std::vector<std::pair<std::string, std::string>>& parts) {
  std::string body;
  for (const auto& [name, value] : parts) {
    const std::string file =
        name == "file" ? "; filename=\"a.txt\"\r\nContent-Type: text/plain" : "";
    body += concat("--=b\r\nContent-Disposition: form-data; name=\"", name, "\"", file, "\r\n\r\n",
                   value, "\r\n");
  }
  return request_text("POST", path, body + "--=b--\r\n",
                      "Content-Type: multipart/form-data; boundary==b\r\n");
}

TEST_F(ServeTest, AlignmentsAreTheCommands) {
  ServerProcess server(*folder_, {"--model", model("translation")});
  const std::vector<std::string> lines = sentences();
  const std::vector<std::string> expected = lines_of(folder_->output(
      "translate --model translation --detail jsonl --alignments -", text_of(lines)));
  const ServedJson answer =
      server.post("/translate", {{"q", lines}, {"alignments", true}, {"alternatives", 1}}).json();
  ASSERT_EQ(answer.at("alignments").size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    const ServedJson line = ServedJson::parse(expected[i]);
    EXPECT_EQ(answer["alignments"][i].at(0), line["translations"][0]["alignment"]) << expected[i];
  }
  const ServedJson two =
      server.post("/translate", {{"q", lines[0] + "\n\n"}, {"alignments", true}}).json();
  EXPECT_EQ(two.at("alignments").size(), 3u) << two;
  EXPECT_TRUE(two.at("alignments").at(1).empty());
  EXPECT_EQ(server.end(), 0) << server.log();
}

TEST_F(ServeTest, HtmlComesOutAsByTheCommand) {
  ServerProcess server(*folder_, {"--model", model("translation")});
  const std::vector<std::string> lines = sentences();
  const std::string first = lines[0].substr(0, lines[0].find(' ')),
                    rest = lines[0].substr(lines[0].find(' '));
  const std::string html = concat("<p class=\"a\"><b>", first, "</b>", rest, "</p><p>", lines[1],
                                  "<br></p> <p>&lt;", lines[2], "</p>");
  const std::string expected = lines_of(folder_->output(
      "translate --model translation --markup html --split-sentences en", html + "\n"))[0];
  const auto asked = [&](ServedJson body) {
    body["format"] = "html";
    return server.post("/translate", body).json();
  };
  EXPECT_EQ(asked({{"q", html}}).at("translatedText"), expected);
  // Line ends are white space: between blocks they are kept.
  std::string wrapped = html, kept = expected;
  wrapped.replace(wrapped.find("</p> <p>") + 4, 1, "\n\n");
  kept.replace(kept.find("</p> <p>") + 4, 1, "\n\n");
  wrapped.replace(wrapped.find(rest), 1, "\n");
  const ServedJson two = asked({{"q", {wrapped, "<hr>", ""}}, {"alternatives", 1}});
  EXPECT_EQ(two.at("translatedText"), (std::vector<std::string>{kept, "<hr>", ""}));
  const std::string other = two.at("alternatives").at(0).at(0);
  for (const char* const tag : {"<p class=\"a\">", "<b>", "</b>", "<br>"}) {
    EXPECT_EQ(other.find(tag), other.rfind(tag)) << other;
    EXPECT_THAT(other, HasSubstr(tag));
  }
  EXPECT_EQ(asked({{"q", html}, {"alignments", true}}).at("alignments").size(), 3u);
  const HttpAnswer refused = server.post("/translate", {{"q", html}, {"format", "rtf"}});
  EXPECT_EQ(refused.status, 400);
  EXPECT_THAT(refused.body, HasSubstr("'format' must be text or html, got 'rtf'"));
  const ServedJson description = server.get("/openapi.json").json();
  EXPECT_THAT(description["paths"]["/translate"]["post"]["requestBody"]["content"]
                         ["application/json"]["schema"]["properties"]["format"]
                             .dump(),
              HasSubstr("text, or html"));
  EXPECT_EQ(server.end(), 0) << server.log();
}

TEST_F(ServeTest, RequiredTextsAreTheCommands) {
  ServerProcess server(*folder_, {"--model", model("translation"), "--batch-size", "4"});
  folder_->write("terms.tsv", "ba\tmu lo\nce di\tfo\n");
  const ServedJson terms = {{"ba", "mu lo"}, {"ce di", "fo"}};
  std::vector<std::string> lines = sentences();
  lines.push_back("ba ce di ba");
  const auto by_command = [&](const std::string& options) {
    return lines_of(folder_->output("translate --model translation " + options, text_of(lines)));
  };
  const std::vector<std::string> plain = by_command(""),
                                 with_terms = by_command("--terms terms.tsv");
  EXPECT_NE(plain, with_terms);
  // At once with requests that ask for nothing, whose answers stay.
  std::vector<std::future<ServedJson>> others;
  for (int i = 0; i < 4; ++i) {
    others.push_back(std::async(std::launch::async, [&] {
      return server.post("/translate", {{"q", lines}}).json().at("translatedText");
    }));
  }
  const ServedJson answer = server.post("/translate", {{"q", lines}, {"terms", terms}}).json();
  EXPECT_EQ(answer.at("translatedText"), with_terms);
  EXPECT_EQ(answer.at("missing"), ServedJson::array());
  for (auto& other : others) EXPECT_EQ(other.get(), plain);

  const ServedJson kept =
      server.post("/translate", {{"q", "ba 1234"}, {"keep", {"numbers", "urls"}}}).json();
  EXPECT_EQ(kept.at("missing"), std::vector<std::string>{"1234"})
      << "no digit is in the vocabulary";
  const HttpAnswer file = server.post(
      "/translate_file", {{"file", text_of(lines)}, {"inline", true}, {"terms", terms}});
  EXPECT_EQ(file.body, text_of(with_terms));
  const HttpAnswer form =
      server.send(request_text("POST", "/translate", "q=ba+ce&terms=%7B%22ba%22%3A%22mu+lo%22%7D",
                               "Content-Type: application/x-www-form-urlencoded\r\n"));
  EXPECT_THAT(form.json().at("translatedText").get<std::string>(), HasSubstr("mu lo"));

  const auto refused = [&](ServedJson body) {
    body["q"] = "ba";
    const HttpAnswer answered = server.post("/translate", body);
    EXPECT_EQ(answered.status, 400) << answered.body;
    return answered.body;
  };
  EXPECT_THAT(refused({{"terms", {{"ba", "Xy"}}}}),
              HasSubstr("that the model can write, got 'Xy'"));
  // A parser keeps one of two equal names: a term would be lost.
  const HttpAnswer twice = server.send(
      request_text("POST", "/translate", R"({"q": "ba", "terms": {"ba": "mu", "ba": "lo"}})",
                   "Content-Type: application/json\r\n"));
  EXPECT_EQ(twice.status, 400);
  EXPECT_THAT(twice.body, HasSubstr("has 'ba' twice"));
  const HttpAnswer deep =
      server.send(request_text("POST", "/translate", "q=ba&terms=" + std::string(1000, '['),
                               "Content-Type: application/x-www-form-urlencoded\r\n"));
  EXPECT_EQ(deep.status, 400);
  EXPECT_THAT(deep.body, HasSubstr("nested deeper than 64"));
  EXPECT_THAT(refused({{"terms", {{"ba", 1}}}}), HasSubstr("'terms' must be an object of texts"));
  EXPECT_THAT(refused({{"terms", {{"ba", " "}}}}), HasSubstr("expected a translation"));
  EXPECT_THAT(refused({{"terms", terms}, {"terms_mode", "soft"}}), HasSubstr("has no <term>"));
  EXPECT_THAT(refused({{"terms", terms}, {"terms_mode", "firm"}}), HasSubstr("hard, soft"));
  EXPECT_THAT(refused({{"keep", "dates"}}), HasSubstr("expected one of urls"));
  EXPECT_THAT(refused({{"keep", "/(a+)+b/"}}), HasSubstr("no regular expressions"));
  EXPECT_EQ(server.end(), 0) << server.log();
}

TEST_F(ServeTest, LanguagesAreDetectedByAClassifierOfThem) {
  model("translation");
  {
    // Nothing but labels tells languages: those of "classification" are none.
    ServerProcess server(*folder_, {"--model", model("translation")});
    const HttpAnswer answer = server.post("/detect", {{"q", "ba ce"}});
    EXPECT_EQ(answer.status, 501) << answer.body;
    EXPECT_THAT(answer.body, HasSubstr("a classification model whose labels are all codes"));
    EXPECT_EQ(server.end(), 0) << server.log();
  }
  std::string train;
  for (const std::string& line : lines_of(read_file(folder_->path("train.tsv")))) {
    const size_t tab = line.find('\t');
    train += concat(line.starts_with("early") ? "de" : "fr", line.substr(tab), '\n');
  }
  folder_->write("train.tsv", train);
  folder_->write("valid.tsv", train);
  ASSERT_EQ(folder_->train("classification", "codes"), 0) << folder_->messages();
  ServerProcess server(*folder_, {"--model", concat("codes=", folder_->path("codes")), "--model",
                                  concat("de-en=", folder_->path("translation")), "--model",
                                  concat("fr-en=", folder_->path("translation"))});
  for (const std::string& text : sentences()) {
    const ServedJson found = server.post("/detect", {{"q", text}}).json();
    ASSERT_EQ(found.size(), 2u) << found;
    const ServedJson expected = ServedJson::parse(
        folder_->output("classify --model codes --top-k 2 --detail jsonl", text + "\n"))["classes"];
    EXPECT_EQ(found[0].at("language"), expected[0].at("label"));
    EXPECT_NEAR(found[0].at("confidence").get<double>(),
                100 * expected[0].at("probability").get<double>(), 0.01);
    const ServedJson answer =
        server.post("/translate", {{"q", text}, {"source", "auto"}, {"target", "en"}}).json();
    EXPECT_EQ(answer.at("detectedLanguage"), found[0]);
  }
  const auto by_name = [&](const char* source, const char* target) {
    return server.post("/translate",
                       {{"q", "ba"}, {"model", "de-en"}, {"source", source}, {"target", target}});
  };
  EXPECT_EQ(by_name("de", "en").status, 200);
  EXPECT_EQ(by_name("auto", "en").status, 200);
  EXPECT_EQ(by_name("de", "fr").status, 400);
  EXPECT_EQ(by_name("fr", "en").status, 400);
  EXPECT_THAT(by_name("fr", "en").body,
              HasSubstr("the model de-en translates de to en, asked was fr to en"));
  EXPECT_EQ(server.end(), 0) << server.log();
}

TEST_F(ServeTest, FilesAreTranslatedLineByLine) {
  const std::string translation = model("translation");
  std::vector<std::string> lines = sentences();
  lines.insert(lines.begin() + 2, "");
  std::string expected = folder_->output("translate --model translation", text_of(lines));
  // More lines than the queue has room for.
  ServerProcess server(*folder_, {"--model", translation, "--max-queue", "12"});
  const HttpAnswer asked = server.send(parts_request(
      "/translate_file", {{"file", text_of(lines)}, {"source", "auto"}, {"target", "en"}}));
  ASSERT_EQ(asked.status, 200) << asked.body;
  const std::string url = asked.json().at("translatedFileUrl");
  ASSERT_TRUE(url.starts_with("http://localhost/download_file?name=")) << url;
  EXPECT_EQ(server.get(url.substr(url.find("/download"))).body, expected);
  EXPECT_EQ(server.get("/download_file?name=00").status, 404);
  const HttpAnswer direct =
      server.send(parts_request("/translate_file", {{"file", text_of(lines)}, {"inline", "true"}}));
  EXPECT_EQ(direct.body, expected);
  EXPECT_THAT(direct.head, HasSubstr("text/plain"));
  EXPECT_EQ(server.post("/translate_file", {{"file", text_of(lines)}, {"inline", true}}).body,
            expected);
  EXPECT_EQ(server.send(parts_request("/translate_file", {{"file", "PK\x03\xFF"}})).status, 400);
  EXPECT_EQ(server.send(parts_request("/translate_file", {{"q", "a"}})).status, 400);
  const HttpAnswer twice =
      server.send(parts_request("/translate_file", {{"file", "ba\n"}, {"file", "ce\n"}}));
  EXPECT_EQ(twice.status, 400);
  EXPECT_THAT(twice.body, HasSubstr("the form has the part 'file' twice"));
  EXPECT_EQ(server.end(), 0) << server.log();
}

TEST_F(ServeTest, AttentionIsTheCommands) {
  ServerProcess server(*folder_, {"--model", model("translation"), "--model", model("clm"),
                                  "--model", model("mlm"), "--model", model("classification")});
  const std::string text = sentences()[0];
  const auto file_of = [&](const std::string& command) {
    folder_->output(command + " --attention map.json", text + "\n");
    return ServedJson::parse(read_file(folder_->path("map.json")));
  };
  const auto asked = [&](ServedJson body) {
    body["text"] = text;
    body["scores"] = true;
    const HttpAnswer answer = server.post("/attention", body);
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer.json();
  };
  EXPECT_EQ(asked({{"model", "translation"}}), file_of("translate --model translation"));
  EXPECT_EQ(asked({{"model", "classification"}}), file_of("classify --model classification"));
  EXPECT_EQ(asked({{"model", "mlm"}}).at("pages").at(0).at("maps"),
            file_of("fill-mask --model mlm").at("pages").at(0).at("maps"));
  EXPECT_EQ(asked({{"model", "clm"}}), file_of("score --model clm --target -"));
  const ServedJson small = server.post("/attention", {{"text", text}, {"answer", "ba"}}).json();
  EXPECT_FALSE(small["pages"][0]["maps"][0].contains("scores"));
  std::string longer;
  for (int i = 0; i < 300; ++i) longer += text + ' ';
  EXPECT_THAT(server.post("/attention", {{"text", longer}}).body, HasSubstr("at most 256"));
  EXPECT_EQ(server.post("/attention", {{"text", ""}}).status, 400);
  EXPECT_EQ(server.end(), 0) << server.log();
}

}  // namespace
}  // namespace tapestry
