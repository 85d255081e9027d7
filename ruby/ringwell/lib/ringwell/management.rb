# frozen_string_literal: true

module Ringwell
  # Requests to a server's management address, each on its own connection.
  class Management
    TOKEN = /\A[\x21-\x7e]+\z/

    # @param url [String] "http://HOST:PORT" of the management address
    # @param token [String]
    # @raise [ConfigError] says what is wrong
    def initialize(url, token:)
      @endpoint = Endpoint.new(text: url)
      @addresses = Addresses.new(@endpoint)
      TOKEN.match?(token.to_s) or raise ConfigError, "the token has invalid characters"
      @token = token
    end

    # @return [String] the answer's body
    # @raise [TransportError] there was no answer
    # @raise [ServerError] the answer's status is not 2xx
    def get(path, deadline) = exchange("GET #{path}", nil, deadline)

    # Sends JSON.
    #
    # @param idempotency_key [String] a repeated key takes effect once
    # @return [String] see {#get}
    def post(path, body, deadline, idempotency_key:)
      headers = "content-type: application/json\r\ncontent-length: #{body.bytesize}\r\n" \
                "idempotency-key: #{idempotency_key}\r\n"
      exchange("POST #{path}", headers, deadline, body)
    end

    # The token must not appear in a log.
    def inspect = "#<#{self.class.name} #{@endpoint}>"

    # @return [String]
    def to_s = @endpoint.to_s

    private

    def exchange(line, headers, deadline, body = "")
      connection = Connection.new(@endpoint, @addresses.find(deadline), deadline)
      response = connection.call(
        "#{line} HTTP/1.1\r\nhost: #{@endpoint.host}\r\nuser-agent: #{Headers::USER_AGENT}\r\n" \
        "authorization: Bearer #{@token}\r\n#{headers}connection: close\r\n\r\n".b << body.b, deadline
      )
      return response.body if response.status.between?(200, 299)

      raise ServerError.new(status: response.status, body: response.body)
    ensure
      connection&.close
    end
  end
end
