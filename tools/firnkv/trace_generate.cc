#include <sstream>

#include "proto/base/status.h"
#include "proto/base/text.h"
#include "tools/firnkv/command_tree.h"
#include "tools/firnkv/commands.h"
#include "tools/firnkv/context.h"
#include "tools/firnkv/safe_file.h"
#include "tools/replay/text_table.h"
#include "tools/replay/trace_generator.h"

namespace firnkv {
namespace {

struct Options {
  std::string file;
  bool force = false;
  TraceGeneratorOptions generator;
};

absl::Status Store(const Trace& trace, const Options& options) {
  std::ostringstream text;
  WriteTrace(trace, text);
  SafeFile file(
      options.file,
      {.mode = 0644,
       .overwrite = options.force ? Overwrite::kReplace : Overwrite::kRefuse});
  RETURN_IF_ERROR(file.Open());
  RETURN_IF_ERROR(file.Write(text.str()));
  return file.Commit();
}

ExitCode Run(Context& context, const Options& options) {
  const absl::StatusOr<Trace> trace = GenerateTrace(options.generator);
  if (!trace.ok()) return context.Fail(trace.status());
  if (const absl::Status status = Store(*trace, options); !status.ok()) {
    return context.Fail(status);
  }
  return context.Print(
      StrCat(options.file, ": ", FormatCount(trace->requests.size()),
             " requests, ", FormatCount(trace->references), " blocks, ",
             FormatCount(trace->distinct), " different ones\n"),
      Json::Object()
          .Set("file", options.file)
          .Set("requests", trace->requests.size())
          .Set("blocks", trace->references)
          .Set("distinct_blocks", trace->distinct));
}

void Declare(Arguments* arguments, Options* options) {
  TraceGeneratorOptions* const generator = &options->generator;
  arguments->Place("FILE", &options->file, "Where to.");
  arguments->Flag("--force", &options->force,
                  "Replace the file where it is there.");
  arguments->Count("--seed", &generator->seed,
                   "The same seed and options give the same trace.");
  arguments->Time("--duration", &generator->duration, "Of the trace.");
  arguments->Real("--conversations", &generator->conversations_a_minute,
                  "Conversations that begin in a minute.");
  arguments->Real("--turns", &generator->turns, "Turns of one, on average.");
  arguments->Time("--thinking", &generator->thinking,
                  "Between an answer and the next question, on average.");
  arguments->Count("--system-prompt-tokens", &generator->system_prompt_tokens,
                   "Of the prompt that all conversations share.");
  arguments->Count("--question-tokens", &generator->question_tokens,
                   "Of a question, on average.");
  arguments->Count("--answer-tokens", &generator->answer_tokens,
                   "Of an answer, on average.");
  arguments->Count("--block-tokens", &generator->block_tokens, "Of a block.");
}

}  // namespace

void AddTraceGenerate(CommandTree* tree) {
  tree->Add<Options>("trace generate",
                     "Make a request trace: conversations of several turns "
                     "with a shared system prompt.",
                     Declare, Run);
}

}  // namespace firnkv
