#include "resource_manager/adapters/store_view.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "log/group_commit.h"
#include "tests/log/temporary_directory.h"

namespace twofold::resource_manager::store {
namespace {

TEST(Overlay, ShowsTheNewestAppliedWrite) {
  Overlay overlay;
  overlay.apply({{"k", "1"}, {"other", "x"}}, 1);
  overlay.apply({{"k", std::nullopt}}, 2);
  ASSERT_NE(overlay.find("k"), nullptr);
  EXPECT_EQ(*overlay.find("k"), std::nullopt);
  EXPECT_EQ(*overlay.find("other"), "x");
  EXPECT_EQ(overlay.find("absent"), nullptr);
}

TEST(Overlay, ANewerWriteOfAKeyOutlivesTheOlderOnesEnd) {
  Overlay overlay;
  overlay.apply({{"k", "1"}, {"other", "x"}}, 1);
  overlay.apply({{"k", "2"}}, 2);
  overlay.settle({"k", "other"}, 1);
  ASSERT_NE(overlay.find("k"), nullptr);
  EXPECT_EQ(*overlay.find("k"), "2");
  EXPECT_EQ(overlay.find("other"), nullptr);
  overlay.settle({"k"}, 2);
  EXPECT_TRUE(overlay.empty());
}

class StoreView : public ::testing::Test {
 protected:
  StoreView()
      : environment_(
            lmdb::Environment::create(directory_.path() / "data",
                                      {1u << 20, {"meta", "data", "prepared", "outcomes", "nodes"}})
                .value()),
        reader_(*environment_) {
    reader_.reset();
  }
  void write(std::string key, std::string value) {
    Write write;
    write.mutations.push_back({Mutation::Kind::put, kData, std::move(key), std::move(value)});
    LmdbTarget target(*environment_);
    const Write* const writes[] = {&write};
    ASSERT_EQ(target.apply(target.last_group() + 1, writes), GroupTarget::Applied::durable);
  }
  std::optional<std::string> find(std::string_view key) {
    AppliedView view(overlay_, *environment_, reader_);
    std::optional<std::string_view> found = view.find(key);
    return found ? std::optional<std::string>(*found) : std::nullopt;
  }

  test::TemporaryDirectory directory_;
  std::unique_ptr<lmdb::Environment> environment_;
  lmdb::Reader reader_;
  Overlay overlay_;
};

TEST_F(StoreView, TheOverlayHidesWhatIsDurable) {
  write("k", "durable");
  write("erased", "durable");
  overlay_.apply({{"k", "applied"}, {"erased", std::nullopt}}, 1);
  EXPECT_EQ(find("k"), "applied");
  EXPECT_EQ(find("erased"), std::nullopt);
  overlay_.settle({"k", "erased"}, 1);
  EXPECT_EQ(find("k"), "durable");
}

// What leaves the overlay is durable, so the next view must show it: no snapshot outlives its call.
TEST_F(StoreView, EachViewSeesTheNewestDurableState) {
  write("k", "1");
  EXPECT_EQ(find("k"), "1");
  overlay_.apply({{"k", "2"}}, 1);
  write("k", "2");
  overlay_.settle({"k"}, 1);
  EXPECT_EQ(find("k"), "2");
}

TEST_F(StoreView, OneViewKeepsToOneSnapshot) {
  write("k", "1");
  AppliedView view(overlay_, *environment_, reader_);
  EXPECT_EQ(view.find("k"), "1");
  write("k", "2");
  EXPECT_EQ(view.find("k"), "1");
}

}  // namespace
}  // namespace twofold::resource_manager::store
