# frozen_string_literal: true

require_relative "base"
require_relative "pool"

module Ringwell
  # The settings of a client, as they stand in a file.
  #
  #     endpoints: ["unix:/run/ringwell.sock"]
  #     deadline: 0.15
  #     pools:
  #       "42": { key: "s3cr3t", overflow: "8005550100" }
  class Config < Value
    value_fields :endpoints, :deadline, :connections, :idle, :pools, :fake

    # @param endpoints [String, Array<String>] and what {Client#initialize} takes
    # @param pools [Enumerable<Pool>]
    # @param fake [Boolean] whether {#client} is a {Fake} that knows all pools
    def initialize(endpoints: nil, deadline: 0.15, connections: 16, idle: 30, pools: [], fake: false)
      fake || endpoints or raise ArgumentError, "missing keyword: :endpoints"
      @endpoints = Value.copy(Array(endpoints))
      @deadline = deadline
      @connections = connections
      @idle = idle
      @pools = pools.dup.freeze
      @fake = fake
      freeze
    end

    # Reads a hash with names as strings or symbols, e.g. from YAML.
    #
    # @param settings [Hash]
    # @return [Config]
    # @raise [ConfigError] names the setting that is unknown, missing or of another shape
    def self.read(settings)
      settings = settings.to_h.transform_keys(&:to_sym)
      pools = (settings.delete(:pools) || {}).map { |id, pool| read_pool(id, pool) }
      new(**settings, pools: pools)
    rescue ArgumentError, NoMethodError => error
      raise ConfigError, "settings of Ringwell: #{error.message}"
    end

    def self.read_pool(id, settings)
      Pool.new(id: id.to_s, **settings.to_h.transform_keys(&:to_sym))
    rescue ArgumentError => error
      raise ConfigError, "settings of pool #{id}: #{error.message}"
    end
    private_class_method :read_pool

    # A client with these settings.
    #
    # @return [Client, Fake]
    def client(**options)
      if fake
        require_relative "fake"
        return Fake.new(any_pool: true, instrumenter: :active_support, deadline:, pools:, **options)
      end
      Client.new(endpoints, deadline:, connections:, idle:, pools:, **options)
    end
  end
end
