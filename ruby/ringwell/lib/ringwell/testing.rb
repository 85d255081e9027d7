# frozen_string_literal: true

require_relative "fake"

module Ringwell
  # Common to the helpers for minitest and RSpec: a {Fake} as {Ringwell.client}, fresh for each
  # test.
  module Testing
    # The source of numbers in tests: {Ringwell.client}, if it is a fake, else a fake in its place.
    # A fake with numbers for any pool.
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

    # The numbers that were allocated to one visitor alone.
    #
    # @param pool [String, Integer, nil] of one pool only
    # @param params [Hash] which the number's parameters must include
    # @return [Array<Hash>] entries of {Fake#history}
    def self.shown(pool, params)
      wanted = params.to_h { |name, value| [name.to_s, value.to_s] }
      fake.history.select do |entry|
        (pool.nil? || entry[:pool] == pool.to_s) && wanted <= entry[:params]
      end
    end
  end
end
