# frozen_string_literal: true

require "open3"

# Tools for testing applications: the fake, and helpers for minitest and RSpec.
class HelpersTest < RingwellTest
  LIB = File.expand_path("../lib", __dir__)
  SHOP = <<~RUBY
    def visit(campaign) = Ringwell.client.allocate("42", params: { m1: campaign }).formatted
  RUBY

  it "a fake of all pools has numbers for fiction, and can start over" do
    fake = Ringwell::Fake.new(any_pool: true, pools: [Ringwell::Pool.new(id: 7, key: "k")])
    assert_equal %w[2005550101 2015550101], %w[1 2].map { |pool| fake.allocate(pool).number }
    assert_equal "2005550102", fake.allocate("1", key: "whatever").number
    fake.exhaust!("9")
    assert_equal "2025550199", fake.allocate("9").number
    fake.advance(5)
    fake.refuse!
    assert_same fake, fake.reset!
    assert_equal ["2005550101", 1, 0.0], [fake.allocate("1").number, fake.history.size, fake.now]
    assert_equal "2035550101", fake.allocate(7).number
  end

  it "in minitest each test begins with a fresh fake" do
    said = run_program("minitest/autorun", "ringwell/minitest", <<~RUBY)
      class ShopTest < Minitest::Test
        #{SHOP}
        2.times do |i|
          define_method("test_\#{i}") do
            assert_equal "200-555-0101", visit("autos")
            assert_equal "2005550101", assert_ringwell_number("42", params: { m1: "autos" })
            refute_ringwell_number("43")
            assert_raises(Minitest::Assertion) { refute_ringwell_number }
            error = assert_raises(Minitest::Assertion) { assert_ringwell_number("42", params: { m1: "homes" }) }
            assert_includes error.message, "no number of pool 42 was allocated"
            ringwell.late!(1)
            assert_equal :late, Ringwell.client.allocate("42", overflow: "8005550100").reason
          end
        end
      end
      Minitest.after_run { p Ringwell.client? }
    RUBY
    assert_match(/2 runs, \d+ assertions, 0 failures, 0 errors.*^nil$/m, said)
  end

  it "in RSpec each example begins with a fresh fake" do
    skip "RSpec is not installed" if Gem::Specification.find_all_by_name("rspec-core").empty?
    said = run_program("rspec/autorun", "ringwell/rspec", <<~RUBY)
      #{SHOP}
      Ringwell.client = Ringwell::Fake.new(any_pool: true)
      RSpec.describe "the shop" do
        2.times do
          it "shows a number" do
            expect { visit("autos") }.to show_ringwell_number("42").with(m1: "autos")
            expect { visit("autos") }.not_to show_ringwell_number("42").with(m1: "homes")
            expect { visit("autos") }.not_to show_ringwell_number("43")
            expect(ringwell.history.size).to eq 3
            expect { expect { nil }.to show_ringwell_number }
              .to raise_error(RSpec::Expectations::ExpectationNotMetError, /pool any was allocated/)
          end
        end
      end
    RUBY
    assert_match(/2 examples, 0 failures/, said)
  end

  private

  def run_program(framework, helper, program)
    said, status = Open3.capture2e(RbConfig.ruby, "-W:no-experimental", "-I", LIB, "-r", framework, "-r", helper, "-e",
      program)
    assert_predicate status, :success?, said
    said
  end
end
