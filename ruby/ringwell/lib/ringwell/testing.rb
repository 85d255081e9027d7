# frozen_string_literal: true

require_relative "fake"

module Ringwell
  # The common part of the helpers for minitest and RSpec: a fresh {Fake} as {Ringwell.client} for
  # each test.
  module Testing
    # The current test's fake: {Ringwell.client} if that is a fake, else a new fake that replaces it
    # and accepts any pool.
    #
    # @return [Fake]
    def ringwell
      Testing.fake
    end

    # Begins a test. {.finish} restores the previous client.
    #
    # @return [Fake]
    def self.begin_anew
      @before ||= [Ringwell.client?]
      Ringwell.client = Fake.new(any_pool: true) unless fake?
      Ringwell.client.reset!
    end

    # Ends a test.
    def self.finish
      Ringwell.client = @before[0] if @before
      @before = nil
    end

    # @return [Fake]
    def self.fake = fake? ? Ringwell.client : begin_anew

    def self.fake? = Ringwell.client?.is_a?(Fake)
    private_class_method :fake?

    # The numbers that were each allocated to a single visitor.
    #
    # @param pool [String, Integer, nil] only from this pool; nil for any
    # @param params [Hash] parameters that the allocation must include
    # @return [Array<Hash>] entries of {Fake#history}
    def self.shown(pool, params)
      wanted = params.to_h { |name, value| [name.to_s, value.to_s] }
      fake.history.select do |entry|
        (pool.nil? || entry[:pool] == pool.to_s) && wanted <= entry[:params]
      end
    end
  end
end
