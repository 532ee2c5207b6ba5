// The section `serve`: a file, words and options, one over the other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "apps/config/reference.h"
#include "apps/config/schema.h"
#include "apps/config/section_serve.h"
#include "data/files/files.h"
#include "tests/apps/config/schema_check.h"
#include "tests/data/files/files.h"
#include "tests/paths.h"

namespace tapestry {
namespace {

using testing::HasSubstr;

class ServeOptionsTest : public testing::Test {
 protected:
  // The path of a file with this text.
  std::string file(const std::string& text) const { return folder_.write("serve.yaml", text); }
  static std::string error_of(const ServeArguments& arguments) {
    try {
      read_serve_options(arguments);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig);
      return error.what();
    }
    return "no error";
  }

  TempFolder folder_;
};

TEST_F(ServeOptionsTest, OptionsWinOverWordsAndWordsOverTheFile) {
  folder_.write("keys", "secret\n");
  const std::string path = file(
      "serve:\n  models: {name: a, path: runs/a, weights: int8}\n  weights: bfloat16\n"
      "  api_key_file: keys\n  port: 1\n  grace: 2\n  max_queue: 3\n");
  const ServeOptions options = read_serve_options(
      {.words = {path, "serve.grace=4.5", "serve.max_queue=5"},
       .options = {{"--max-queue", "max_queue", "6"}, {"--host", "host", "0.0.0.0"}}});
  ASSERT_EQ(options.models.size(), 1u);
  EXPECT_EQ(options.models[0].name, "a");
  EXPECT_EQ(options.models[0].path, "runs/a");  // starts at the working directory
  EXPECT_EQ(options.models[0].weights, WeightFormat::kInt8);
  EXPECT_EQ(options.weights, WeightFormat::kBFloat16);
  EXPECT_EQ(options.api_key_file, folder_.path("keys"));  // stands beside the file
  EXPECT_EQ(options.port, 1);
  EXPECT_EQ(options.grace, 4.5);
  EXPECT_EQ(options.max_queue, 6);
  EXPECT_EQ(options.host, "0.0.0.0");
  EXPECT_EQ(options.max_tokens, ServeOptions().max_tokens);
}

TEST_F(ServeOptionsTest, ModelsOfTheCommandLineReplaceThoseOfTheFile) {
  const std::string path =
      file("serve: {models: [{name: a, path: x}, {name: b, path: y, weights: int8}]}\n");
  EXPECT_EQ(read_serve_options({.words = {path}}).models.size(), 2u);
  // Neither is YAML.
  const ServeOptions options =
      read_serve_options({.words = {path}, .models = {"c=runs/{1}: #2", "1=true"}});
  ASSERT_EQ(options.models.size(), 2u);
  EXPECT_EQ(options.models[0].path, "runs/{1}: #2");
  EXPECT_EQ(options.models[1].name, "1");
  EXPECT_EQ(options.models[1].path, "true");
  EXPECT_FALSE(options.models[1].weights);
  // Without a file.
  EXPECT_EQ(read_serve_options({.words = {"serve.port=9"}, .models = {"a=b"}}).port, 9);
}

TEST_F(ServeOptionsTest, EverythingWrongIsToldAtOnceWithItsPlace) {
  const std::string path = file(
      "serve:\n"
      "  models:\n"
      "    - {name: a b, path: x}\n"
      "    - {name: c}\n"
      "    - {name: c, path: z, weights: int9}\n"
      "  prt: 5\n"
      "  memory: lots\n"
      "  device: gpu\n"
      "  api_key_file: nothere\n");
  const std::string error =
      error_of({.words = {path, "serve.grace=-1"}, .options = {{"--timeout", "timeout", "soon"}}});
  for (const std::string expected :
       {"10 errors", ":3:14: a model's name has letters, digits and -_.:/, got 'a b'.",
        ":4:7: missing key 'path' in 'serve.models.1'", "two models have the name 'c'",
        "'serve.models.2.weights' must be one of same, float32,",
        ":6:3: unknown key 'prt' in 'serve'; did you mean 'port'?",
        ":7:11: 'serve.memory' must be a size such as 4GB or 1.5 GiB, in B, kB, MB, GB, TB, KiB, "
        "MiB, GiB or TiB, got 'lots'.",
        "'serve.device' must be one of", "nothere does not exist.",
        "serve.grace=-1: 'serve.grace' must be in [0, 86400], got -1.",
        "--timeout soon: 'serve.timeout' must be a number, got 'soon'."}) {
    EXPECT_THAT(error, HasSubstr(expected));
  }
  EXPECT_THAT(error_of({}), HasSubstr("no model to serve: --model NAME=DIR or the key"));
  EXPECT_THAT(error_of({.words = {file("serve:\n  models: []\n")}}), HasSubstr("no model to"));
  EXPECT_THAT(error_of({.words = {file("serve: 5\n")}}), HasSubstr("'serve' must be"));
  EXPECT_THAT(error_of({.words = {file("task: clm\n")}}), HasSubstr("unknown key 'task'"));
  EXPECT_THAT(error_of({.words = {"a.yaml"}}), HasSubstr("a.yaml: cannot be read"));
  EXPECT_THAT(error_of({.models = {"a="}}), HasSubstr("expected --model NAME=DIR, got 'a='."));
  EXPECT_THAT(error_of({.models = {"a=b"}, .options = {{"--port", "port", "70000"}}}),
              HasSubstr("--port 70000: 'serve.port' must be in [0, 65535], got 70000."));
}

// To write it anew: tapestry help serve --schema > configs/serve.schema.json
TEST_F(ServeOptionsTest, TheSchemaSaysWhatTheReaderSays) {
  EXPECT_TRUE(read_file(project_file("configs/serve.schema.json")) == serve_schema());
  SchemaCheck schema(serve_schema());
  const std::string shipped = read_file(project_file("apps/commands/serve/serve.yaml"));
  EXPECT_EQ(schema.problems(shipped, {}), "");
  EXPECT_EQ(read_serve_options({.words = {file(shipped)}}).models.at(0).path,
            "/srv/tapestry/en-de");
  for (const std::string fine :
       {"serve.port=0", "serve.models={name: a, path: b}", "serve.grace=0.5", "serve.memory=4GB",
        "serve.weights=auto", "serve.models.0.weights=same", "serve.max_body=1"}) {
    EXPECT_EQ(schema.problems(shipped, {fine}), "") << fine;
    EXPECT_EQ(error_of({.words = {file(shipped), fine}}), "no error") << fine;
  }
  for (const std::string wrong :
       {"serve.port=65536", "serve.models=[]", "serve.models={name: a}", "serve.grace=x",
        "serve.weights=same", "serve.models.0.weights=auto", "serve.max_body=0", "serve.prt=1",
        "serve.models.0.port=1", "task=clm", "serve=5"}) {
    EXPECT_NE(schema.problems(shipped, {wrong}), "") << wrong;
    EXPECT_NE(error_of({.words = {file(shipped), wrong}}), "no error") << wrong;
  }
}

TEST_F(ServeOptionsTest, TheKeysAreExplainedLikeThoseOfAConfig) {
  EXPECT_THAT(describe_key("serve.port"), HasSubstr("integer, in [0, 65535]; default: 8080\n"));
  EXPECT_THAT(describe_key("serve.models"), HasSubstr("serve.models.path\n"));
  EXPECT_THAT(key_reference_markdown(), HasSubstr("\n## `serve`\n"));
}

}  // namespace
}  // namespace tapestry
