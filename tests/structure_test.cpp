// structure: what docs/structure.md says about includes, file lengths and names holds for every file of the tree.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace
{

namespace fs = std::filesystem;

const std::map<std::string, std::set<std::string>> may_include = {
    {"tasks", {"tasks"}},
    {"host", {"tasks", "host"}},
    {"megakernel", {"tasks", "megakernel"}},
    {"runtime", {"tasks", "host", "megakernel", "runtime"}},
    {"bench", {"tasks", "host", "megakernel", "runtime", "bench", "tests"}},
    {"tests", {"tasks", "host", "megakernel", "runtime", "bench", "tests"}},
};

std::vector<fs::path> sources(const std::string &folder)
{
    std::vector<fs::path> out;
    fs::path root = fs::path(WEFT_SOURCE_DIR) / folder;
    if (!fs::exists(root)) return out;
    for (const auto &entry : fs::recursive_directory_iterator(root)) {
        std::string e = entry.path().extension();
        if (e == ".h" || e == ".c" || e == ".cpp" || e == ".cu" || e == ".cuh" || e == ".def")
            out.push_back(entry.path());
    }
    return out;
}

std::string folder_of(const fs::path &file) { return *fs::relative(file, WEFT_SOURCE_DIR).begin(); }

// What an include line names, with its quotes or brackets; "" for any other line.
std::string included(const std::string &line)
{
    size_t hash = line.find_first_not_of(" \t"), word = std::string::npos;
    if (hash != std::string::npos && line[hash] == '#') word = line.find_first_not_of(" \t", hash + 1);
    if (word == std::string::npos || line.compare(word, 7, "include") != 0) return "";
    size_t begin = line.find_first_of("\"<", word), end = line.find_first_of("\">", begin + 1);
    return begin == std::string::npos || end == std::string::npos ? "" : line.substr(begin, end - begin + 1);
}

TEST(Structure, IncludesPointOneWay)
{
    int checked = 0;
    for (const auto &[folder, allowed] : may_include)
        for (const auto &file : sources(folder)) {
            std::ifstream in(file);
            for (std::string line; std::getline(in, line);) {
                std::string name = included(line);
                if (name.empty() || name[0] != '"') continue;
                fs::path target = (file.parent_path() / name.substr(1, name.size() - 2)).lexically_normal();
                if (!fs::exists(target)) continue; // generated, or found through -I: "weft.h" in an example
                checked++;
                EXPECT_TRUE(allowed.count(folder_of(target))) << file << " includes " << name;
            }
        }
    EXPECT_GT(checked, 50);
}

TEST(Structure, HostIsPure)
{
    for (const auto &file : sources("host")) {
        std::ifstream in(file);
        for (std::string line; std::getline(in, line);) {
            std::string name = included(line);
            for (const char *forbidden :
                 {"<pthread.h>", "<threads.h>", "<cuda", "<time.h>", "<sys/time.h>", "<stdatomic.h>"})
                EXPECT_NE(name.rfind(forbidden, 0), 0u) << file << ": " << line;
        }
    }
}

TEST(Structure, FilesAreShort)
{
    for (const auto &[folder, allowed] : may_include)
        for (const auto &file : sources(folder)) {
            std::ifstream in(file);
            long lines = std::count(std::istreambuf_iterator<char>(in), {}, '\n');
            EXPECT_LE(lines, 720) << file; // about 700, and what the formatter adds
        }
}

TEST(Structure, NamesAreUnique)
{
    std::map<std::string, fs::path> seen;
    for (const auto &[folder, allowed] : may_include)
        for (const auto &file : sources(folder)) {
            auto [at, fresh] = seen.emplace(file.filename(), file);
            EXPECT_TRUE(fresh) << file << " and " << at->second;
        }
}

} // namespace
