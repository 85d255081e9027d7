# frozen_string_literal: true

require "digest"
require "net/http"

# For test classes: a real server that accepts reports of calls, and a provider that sends them.
module Telephone
  TOKEN = "a-token-of-the-tests"
  SECRET = "a-secret-of-the-provider-0123456789"

  # @param more [String] other sections of the configuration
  # @return [Server] with pool 42
  def telephone_server(more)
    @phone = Server.free_port
    pool = Server.pool(42, key: RingwellTest::KEY, numbers: ["8885550101-8885550189"], overflow: "8885550199")
    server(pool, settings: "#{calls}#{more}", files: {"main.secret" => SECRET})
  end

  # Reports an event of the call "a1", like a telephone switch.
  def report(**fields)
    body = JSON.generate({call_id: "a1", at: Time.now.utc.strftime("%FT%T.%LZ"), **fields})
    answer = Net::HTTP.post(URI("http://127.0.0.1:#{@phone}/t/main/events"), body,
      "content-type" => "application/json", "authorization" => "Bearer #{SECRET}")
    assert_equal "200", answer.code, answer.body
  end

  # Returns the answer from the server's management address.
  def ask(server, path, body = nil)
    uri = URI("#{server.url}#{path}")
    headers = {"content-type" => "application/json", "authorization" => "Bearer #{TOKEN}"}
    answer = body ? Net::HTTP.post(uri, JSON.generate(body), headers) : Net::HTTP.get_response(uri, headers)
    assert_match(/\A2/, answer.code, answer.body)
    JSON.parse(answer.body)
  end

  private

  def calls
    <<~TOML
      management.token_sha256 = ["#{Digest::SHA256.hexdigest(TOKEN)}"]
      [calls]
      listen = "127.0.0.1:#{@phone}"
      [[calls.account]]
      name = "main"
      provider = "generic"
      public_url = "https://calls.example"
      secret_files = ["main.secret"]
      [[calls.destination]]
      to = ["+18005550199"]
    TOML
  end
end
