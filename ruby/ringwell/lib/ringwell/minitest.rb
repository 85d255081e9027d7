# frozen_string_literal: true

require "minitest"
require_relative "testing"

module Ringwell
  # For minitest and Rails' own tests. `require "ringwell/minitest"` is all: each test begins with a
  # fresh {Fake} as {Ringwell.client}, which `ringwell` returns.
  #
  #     get "/?campaign=autos"
  #     assert_ringwell_number "42", params: { m1: "autos" }
  module MinitestHelper
    include Testing

    def before_setup
      Testing.begin_anew
      super
    end

    def after_teardown
      super
      Testing.finish
    end

    # Fails unless a number of the pool went out for these parameters.
    #
    # @param pool [String, Integer, nil] nil for any
    # @param params [Hash] which must be among those of the number
    # @return [String] the number that went out last
    def assert_ringwell_number(pool = nil, params: {})
      shown = Testing.shown(pool, params)
      refute_empty shown, "no number of pool #{pool || "any"} went out with #{params}: " \
                          "#{ringwell.history.map { |one| one.slice(:pool, :params) }}"
      shown.last[:number]
    end

    # Fails if a number of the pool went out.
    #
    # @param pool [String, Integer, nil] nil for any
    def refute_ringwell_number(pool = nil, params: {})
      assert_empty Testing.shown(pool, params).map { |one| one.slice(:pool, :params) }
    end
  end
end

Minitest::Test.include(Ringwell::MinitestHelper)
