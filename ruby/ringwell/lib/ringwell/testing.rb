# frozen_string_literal: true

require_relative "fake"

module Ringwell
  # What the helpers for minitest and RSpec share: a {Fake} as {Ringwell.client}, fresh for each test.
  module Testing
    # The numbers' source in tests: {Ringwell.client}, if it is a fake, else one that takes its place.
    # Any pool has numbers.
    #
    # @return [Fake]
    def ringwell
      Testing.fake
    end

    # Begins a test. The client that was there is put back by {.finish}.
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

    # The numbers that were handed out and are the caller's alone.
    #
    # @param pool [String, Integer, nil] of one pool only
    # @param params [Hash] which must be among those of the number
    # @return [Array<Hash>] entries of {Fake#history}
    def self.shown(pool, params)
      wanted = params.to_h { |name, value| [name.to_s, value.to_s] }
      fake.history.select do |entry|
        (pool.nil? || entry[:pool] == pool.to_s) && wanted <= entry[:params]
      end
    end
  end
end
