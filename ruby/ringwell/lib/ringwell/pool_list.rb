# frozen_string_literal: true

require_relative "management"

module Ringwell
  # The list of ring pools at a server's management address, which requires a token.
  class PoolList
    include Enumerable

    # @param management [Management]
    # @param deadline [Deadline] seconds for all pages together
    def initialize(management, deadline:)
      @management = management
      @deadline = deadline
    end

    # Requests page after page.
    #
    # @yieldparam id [Integer]
    # @yieldparam overflow [String, nil] ten digits or E.164, if it has an overflow number
    # @raise [TransportError] there was no answer, or the answer is not a list of pools
    # @raise [ServerError] the token may not read, or the server does not keep its pools in a
    #   database
    def each(&)
      after = nil
      until (pools = page(after)).empty?
        pools.each(&)
        after = pools.last.first
      end
      self
    end

    private

    def page(after) = read(@management.get("/v1/pools#{"?after=#{after}" if after}", @deadline))

    def read(body)
      JSON.parse(body, symbolize_names: true) => Array => pools
      pools.map do |pool|
        pool => { id: Integer => id, overflow_number: Request::NUMBER | nil => overflow }
        [id, overflow]
      end
    rescue JSON::ParserError, NoMatchingPatternError => error
      raise ProtocolError, "#{@management} did not return a list of pools: #{error.message[0, 100]}"
    end
  end
end
