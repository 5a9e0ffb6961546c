#include "transport/machine/recording.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace gradring::machine {
namespace {

// The largest machines take some ten KiB of YAML and some MiB of XML.
constexpr std::streamsize kYamlBytesMax = 1 << 20;

Status write(const std::filesystem::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (file) return Status();
  return Status(Code::kInternal,
                fmt::format("cannot write {}: {}", path.string(), std::strerror(errno)));
}

}  // namespace

Status write_recording(const std::string& folder, const std::string& xml, const Answers& answers) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    return Status(Code::kInternal, fmt::format("cannot make {}: {}", folder, error.message()));
  }
  const std::filesystem::path path(folder);
  if (Status status = write(path / kTreeFile, xml); !status.ok()) return status;
  return write(path / kAnswersFile, yaml_of(answers));
}

tl::expected<Answers, Status> read_recorded_answers(const std::string& folder) {
  const std::string path = (std::filesystem::path(folder) / kAnswersFile).string();
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return tl::unexpected(
        Status(Code::kNotFound, fmt::format("{}: {}; a recording is a folder with {} and {}", path,
                                            std::strerror(errno), kTreeFile, kAnswersFile)));
  }
  std::string text(kYamlBytesMax + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() > kYamlBytesMax) {
    return tl::unexpected(
        Status(Code::kInvalidArgument, fmt::format("{} is longer than any machine needs", path)));
  }
  auto answers = parse_answers(text);
  if (answers) return answers;
  return tl::unexpected(
      Status(answers.error().code(), fmt::format("{}: {}", path, answers.error().message())));
}

}  // namespace gradring::machine
