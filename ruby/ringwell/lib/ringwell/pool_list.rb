# frozen_string_literal: true

module Ringwell
  # The ring pools that a server's management address lists for whoever has a token.
  class PoolList
    include Enumerable

    # @param management [String] "http://HOST:PORT" of the management address
    # @param token [String] may read there
    # @param deadline [Deadline] for all pages together
    # @raise [ConfigError] says what is wrong
    def initialize(management, token:, deadline:)
      @endpoint = Endpoint.new(text: management)
      @addresses = Addresses.new(@endpoint)
      @deadline = deadline
      /\A[\x21-\x7e]+\z/.match?(token) or raise ConfigError, "the token has characters of no token"
      @token = token
    end

    # Asks for page after page.
    #
    # @yieldparam id [Integer]
    # @yieldparam overflow [String, nil] ten digits, if it has an overflow number
    # @raise [TransportError] there was no answer, or none that is such a list
    # @raise [ServerError] the token may not read, or the server keeps its pools in no database
    def each(&)
      after = nil
      until (pools = page(after)).empty?
        pools.each(&)
        after = pools.last.first
      end
      self
    end

    private

    def page(after)
      connection = Connection.new(@endpoint, @addresses.find(@deadline), @deadline)
      response = connection.call(request(after), @deadline)
      raise ServerError.new(status: response.status, body: response.body) if response.status != 200

      read(response.body)
    ensure
      connection&.close
    end

    def read(body)
      JSON.parse(body, symbolize_names: true) => Array => pools
      pools.map do |pool|
        pool => { id: Integer => id, overflow_number: Request::NUMBER | nil => overflow }
        [id, overflow]
      end
    rescue JSON::ParserError, NoMatchingPatternError => error
      raise ProtocolError, "#{@endpoint} answers with no list of pools: #{error.message[0, 100]}"
    end

    def request(after)
      path = "/v1/pools#{"?after=#{after}" if after}"
      "GET #{path} HTTP/1.1\r\nhost: #{@endpoint.host}\r\n" \
        "authorization: Bearer #{@token}\r\nconnection: close\r\n\r\n"
    end
  end
end
