# frozen_string_literal: true

require "rspec/core"
require "rspec/expectations"
require_relative "testing"

# Helpers for RSpec. Only `require "ringwell/rspec"` is needed: each example begins with a fresh
# {Ringwell::Fake} as {Ringwell.client}, which `ringwell` returns.
#
#     expect { visit "/?campaign=autos" }.to show_ringwell_number("42").with(m1: "autos")
RSpec.configure do |config|
  config.include Ringwell::Testing
  config.before { Ringwell::Testing.begin_anew }
  config.after { Ringwell::Testing.finish }
end

RSpec::Matchers.define :show_ringwell_number do |pool = nil|
  supports_block_expectations

  match do |block|
    before = Ringwell::Testing.fake.history.size
    block.call
    shown = Ringwell::Testing.shown(pool, @params || {})
    (shown & Ringwell::Testing.fake.history.drop(before)).any?
  end

  chain(:with) { |params| @params = params }

  failure_message do
    history = Ringwell::Testing.fake.history.map { |one| one.slice(:pool, :params) }
    "no number of pool #{pool || "any"} was allocated with #{@params || {}}: #{history}"
  end
end
