# frozen_string_literal: true

require "minitest"
require_relative "testing"

module Ringwell
  # Helpers for minitest and for Rails tests. Only `require "ringwell/minitest"` is needed: each
  # test begins with a fresh {Fake} as {Ringwell.client}, which `ringwell` returns.
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

    # Fails unless one of the pool's numbers was allocated with these parameters.
    #
    # @param pool [String, Integer, nil] nil for any
    # @param params [Hash] parameters that the allocation must include
    # @return [String] the last allocated number
    def assert_ringwell_number(pool = nil, params: {})
      shown = Testing.shown(pool, params)
      refute_empty shown, "no number of pool #{pool || "any"} was allocated with #{params}: " \
                          "#{ringwell.history.map { |one| one.slice(:pool, :params) }}"
      shown.last[:number]
    end

    # Fails if one of the pool's numbers was allocated.
    #
    # @param pool [String, Integer, nil] nil for any
    def refute_ringwell_number(pool = nil, params: {})
      assert_empty Testing.shown(pool, params).map { |one| one.slice(:pool, :params) }
    end
  end
end

Minitest::Test.include(Ringwell::MinitestHelper)
