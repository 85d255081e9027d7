// Java's HttpClient, which first asks for HTTP/2, and Gson, which escapes & and = so that JSON is
// safe in HTML.
import com.google.gson.Gson;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;

class Client {
  private static final HttpClient HTTP = HttpClient.newHttpClient();
  private static final Gson GSON = new Gson();

  private static HttpResponse<String> send(HttpRequest.Builder request) throws Exception {
    return HTTP.send(request.build(), HttpResponse.BodyHandlers.ofString());
  }

  private static HttpResponse<String> post(String base, Object body) throws Exception {
    var json = HttpRequest.BodyPublishers.ofString(GSON.toJson(body));
    var bulk = URI.create(base + "/api/2013-07-01/bulk.json");
    return send(HttpRequest.newBuilder(bulk).header("Content-Type", "application/json").POST(json));
  }

  private static JsonObject object(HttpResponse<String> response) {
    return GSON.fromJson(response.body(), JsonObject.class);
  }

  public static void main(String[] args) throws Exception {
    var keyword = URLEncoder.encode(args[3], StandardCharsets.UTF_8);
    var suffix = args[1] + "/allocate_number.json?ring_pool_key=" + args[2] + "&keyword=" + keyword;
    var rows = List.of(
        Map.of("api_suffix", suffix, "request_id", "a/b&c"),
        Map.of("api_suffix", suffix, "request_id", 7));
    var line = new StringBuilder("bulk");
    for (JsonElement row : object(post(args[0], Map.of("requests", rows))).getAsJsonArray("responses")) {
      var fields = row.getAsJsonObject();
      line.append(' ').append(fields.get("promo_number").getAsString());
      line.append(' ').append(fields.get("request_id").getAsString());
    }
    System.out.println(line);
    var path = URI.create(args[0] + "/api/2015-12-09/ring_pools/" + suffix);
    var single = object(send(HttpRequest.newBuilder(path)));
    System.out.println("single " + single.get("promo_number").getAsString());
    var refused = post(args[0], List.of());
    var errors = object(refused).getAsJsonObject("errors");
    System.out.println("refused " + refused.statusCode() + " " + errors.get("class").getAsString());
  }
}
